/** What a sandbox may reach, and what it tried; and the secrets that the server keeps. */

import type * as api from "./api.js";
import type { Client } from "./client.js";
import { segment, text, type CallOptions } from "./connection.js";

/** What changes of a sandbox's network; what is left out stays. */
export interface NetworkChanges extends CallOptions {
  /** In place of the one before. */
  policy?: api.NetworkPolicy | undefined;
  /** In place of all before. */
  secrets?: api.Secrets | undefined;
}

/** The network of a sandbox: `sandbox.network`. */
export class Network {
  readonly #client: Client;
  readonly #path: string;

  /** @internal */
  constructor(client: Client, sandboxPath: string) {
    this.#client = client;
    this.#path = `${sandboxPath}/network`;
  }

  /** Its policy, its secrets without their values, and what it has carried. */
  async get(options: CallOptions = {}): Promise<api.NetworkInfo> {
    return (await this.#client.connection.send({ method: "GET", path: this.#path, repeatable: true, ...options })).object<api.NetworkInfo>();
  }

  /**
   * Changes what it may reach, from now on. Connections that would not be allowed any more are cut.
   *
   * @throws BadRequestError a rule or a secret that can't be; `field` names it.
   */
  async set(changes: NetworkChanges): Promise<api.NetworkInfo> {
    const { policy, secrets, signal } = changes;
    return (await this.#client.connection.send({ method: "PATCH", path: this.#path, json: { policy, secrets }, repeatable: true, signal })).object<api.NetworkInfo>();
  }

  /**
   * What it tried to reach and what became of it, the oldest first; also for a while after it has ended.
   *
   * @param options `tail`: so many of the last lines, at most 500, and 50 when left out; `follow` goes on as they are
   *   written, and takes a broken connection up again where it broke.
   */
  async *log(options: { tail?: number | undefined; follow?: boolean | undefined } & CallOptions = {}): AsyncGenerator<api.NetworkLine, void, undefined> {
    const { tail = 50, follow = false, signal } = options;
    const call = { method: "GET", path: `${this.#path}/log`, signal } as const;
    if (follow) {
      const query = [["tail", String(tail)], ["follow", "1"]] as const;
      yield* this.#client.connection.stayOn({ ...call, query }, (event) => event.data as unknown as api.NetworkLine);
      return;
    }
    yield* (await this.#client.connection.send({ ...call, query: [["tail", String(tail)]], repeatable: true })).items<api.NetworkLine>("lines");
  }
}

/** The secrets that the server keeps for the workspace: `client.secrets`. They go in and never come out. */
export class Secrets {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** All of them, by name, without their values. */
  async list(options: CallOptions = {}): Promise<api.SecretInfo[]> {
    return (await this.#client.connection.send({ method: "GET", path: "/secrets", repeatable: true, ...options })).items<api.SecretInfo>("secrets");
  }

  /**
   * Keeps a secret, in place of an earlier one of the same name; needs the scope "admin".
   *
   * @param name what `secrets` of a create calls it as "ref".
   * @param value the whole value of a header, such as "Bearer …".
   */
  async set(name: string, value: string, options: CallOptions = {}): Promise<api.SecretInfo> {
    const json = { value: text("value", value) };
    return (await this.#client.connection.send({ method: "PUT", path: `/secrets/${segment("name", name)}`, json, repeatable: true, ...options })).object<api.SecretInfo>();
  }

  /**
   * Forgets a secret; needs the scope "admin". Requests of sandboxes that use it fail from then on.
   *
   * @throws NotFoundError there is none.
   */
  async delete(name: string, options: CallOptions = {}): Promise<void> {
    await this.#client.connection.send({ method: "DELETE", path: `/secrets/${segment("name", name)}`, ...options });
  }
}
