/** The functions outside that a sandbox can call, and the decisions about calls. */

import type * as api from "./api.js";
import type { Client } from "./client.js";
import { segment, text, type CallOptions } from "./connection.js";
import { Connector } from "./connector.js";
import { Toolset, type Tool, type ToolSource } from "./functions.js";

const SET_SECONDS = 120; // for the documents of services to be read

/** Which approvals are meant. */
export interface ApprovalsOptions extends CallOptions {
  /** Default: those that wait for a decision. */
  status?: "pending" | "approved" | "denied" | "expired" | "cancelled" | "all" | undefined;
}

/** The tools of a sandbox: `sandbox.tools`. */
export class Tools {
  readonly #client: Client;
  readonly #id: string;
  readonly #path: string;
  #functions: ReadonlyMap<string, Tool> = new Map();
  #line: Connector | undefined;

  /** @internal */
  constructor(client: Client, sandboxId: string, sandboxPath: string) {
    this.#client = client;
    this.#id = sandboxId;
    this.#path = `${sandboxPath}/tools`;
  }

  /** What Python in the sandbox can call, by name. */
  async list(options: CallOptions = {}): Promise<api.ToolInfo[]> {
    return (await this.#client.connection.send({ method: "GET", path: this.#path, repeatable: true, ...options })).items<api.ToolInfo>("tools");
  }

  /**
   * Gives it other tools, in place of those before, also while it runs. Calls in progress go on as they began.
   *
   * @param tools as for `Sandbox.create`, and `policy` as its `toolPolicy`.
   * @throws BadRequestError a tool that can't be; `field` names it.
   * @throws AuthError the key may not have the server call that address.
   */
  async set(tools: readonly ToolSource[], options: { policy?: api.ToolPolicy | undefined } & CallOptions = {}): Promise<api.ToolInfo[]> {
    const { policy, signal } = options;
    const given = new Toolset(tools, policy);
    const answer = await this.#client.connection.send({ method: "PUT", path: this.#path, json: given.wire, quietSeconds: SET_SECONDS, repeatable: true, signal });
    await this.connect(given.functions);
    return answer.items<api.ToolInfo>("tools");
  }

  /** The last calls, the newest last, at most `limit` (100 when left out, 1000 at most); without their arguments and results. */
  async calls(options: { limit?: number | undefined } & CallOptions = {}): Promise<api.ToolCall[]> {
    const { limit = 100, signal } = options;
    const query = [["limit", String(limit)]] as const;
    return (await this.#client.connection.send({ method: "GET", path: `${this.#path}/calls`, query, repeatable: true, signal })).items<api.ToolCall>("calls");
  }

  /** Its calls that wait for a decision, the oldest first. `client.approvals` decides. */
  async approvals(options: ApprovalsOptions = {}): Promise<api.Approval[]> {
    return this.#client.approvals.list({ ...options, sandboxId: this.#id });
  }

  /** Takes this program's functions away; calls of them fail from then on. */
  close(): void {
    this.#line?.close();
    this.#line = undefined;
  }

  /**
   * Has calls of functions come here, from now on.
   * @internal
   */
  async connect(functions: ReadonlyMap<string, Tool>): Promise<void> {
    this.close();
    this.#functions = functions;
    if (functions.size === 0) return;
    this.#line = new Connector(this.#client.connection, `${this.#path}/connect`, functions);
    await this.#line.ready;
  }

  /**
   * Has calls of a copy come here, too: they are its own.
   * @internal
   */
  async serve(copy: Tools): Promise<void> {
    await copy.connect(this.#functions);
  }
}

/** Calls of tools that wait for somebody's decision: `client.approvals`. */
export class Approvals {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** Those of the workspace, the oldest first; with `sandboxId` or `agentId` only those of that sandbox, or that agent's run. */
  async list(options: { sandboxId?: string | undefined; agentId?: string | undefined } & ApprovalsOptions = {}): Promise<api.Approval[]> {
    const { sandboxId, agentId, status = "pending", signal } = options;
    const query = [["sandbox_id", sandboxId], ["agent_id", agentId], ["status", status === "all" ? undefined : status]] as const;
    return (await this.#client.connection.send({ method: "GET", path: "/approvals", query, repeatable: true, signal })).items<api.Approval>("approvals");
  }

  /**
   * One of them.
   *
   * @throws NotFoundError there is none.
   */
  async get(id: string, options: CallOptions = {}): Promise<api.Approval> {
    return (await this.#client.connection.send({ method: "GET", path: `/approvals/${segment("id", id)}`, repeatable: true, ...options })).object<api.Approval>();
  }

  /**
   * Lets a call that waits go on, or denies it.
   *
   * @param options `reason` is told to the program that called.
   * @throws ConflictError it was decided before; the message says how.
   * @throws NotFoundError there is none.
   */
  async decide(id: string, approve: boolean, options: string | ({ reason?: string | undefined } & CallOptions) = {}): Promise<api.Approval> {
    const { reason = "", signal } = typeof options === "string" ? { reason: options } : options;
    if (typeof approve !== "boolean") throw new TypeError(`approve must be a boolean, not ${typeof approve}`);
    const json: api.Decision = { approve, reason: text("reason", reason) };
    return (await this.#client.connection.send({ method: "POST", path: `/approvals/${segment("id", id)}`, json, signal })).object<api.Approval>();
  }
}
