/** The sandbox: where an agent's code runs. */

import type * as api from "./api.js";
import { Client, lifeEvents, type ClientOptions, type EventsOptions, type ListOptions } from "./client.js";
import { type Command, Commands, type ExecOptions, type OutputCallbacks } from "./commands.js";
import { asyncDispose, LONGEST_ANSWER_SECONDS, MARGIN_SECONDS, seconds, segment, text, type Call, type CallOptions } from "./connection.js";
import { CodeContext, type RunOptions } from "./context.js";
import { NotFoundError } from "./errors.js";
import { Execution, ExecResult } from "./execution.js";
import { explore, type Candidate, type Exploration, type ExploreOptions } from "./explore.js";
import { Filesystem } from "./filesystem.js";
import { Toolset, type ToolSource } from "./functions.js";
import { Network } from "./network.js";
import { dial, forward, type Forwarding, type PortConnection } from "./port.js";
import { Pty } from "./pty.js";
import { Tools } from "./tools.js";

const DEFAULT_CONTEXT = "default";
// A create may wait a minute for its turn, take a minute, and fail, and then what was made is undone, for a minute at most.
const CREATE_SECONDS = 200;
const SNAPSHOT_SECONDS = 180;

/** What a sandbox is to be. */
export interface CreateOptions extends CallOptions {
  /** What it is made from: "code-interpreter" has the Python stack. Default: "ubuntu-24.04", an alias of "base". */
  template?: string | undefined;
  /** A snapshot, or its id, instead of a template. */
  fromSnapshot?: string | { readonly id: string } | undefined;
  /** Its life on the wall clock, in seconds, until `setTtl`. Default: 300; the server has a ceiling. */
  ttlSeconds?: number | undefined;
  /** Hibernate it when nobody calls for so many seconds. Default: never. */
  idleTimeoutSeconds?: number | undefined;
  /** Hibernate instead of kill when its life is over. */
  persistent?: boolean | undefined;
  /** Strings to find it by. */
  metadata?: Record<string, string> | undefined;
  /** Variables for its cells and commands. */
  envs?: Record<string, string> | undefined;
  /** Cores, 0.1 or more. Default: the template's; the server has ceilings. */
  cpu?: number | undefined;
  /** MiB, 128 or more. Default: the template's. */
  memoryMb?: number | undefined;
  /** MiB that it may write, 16 or more. Default: the template's. */
  diskMb?: number | undefined;
  /** Processes and threads, 16 or more. Default: the template's. */
  pids?: number | undefined;
  /** What it may reach; nothing by default: `{ allow: ["example.com", "*.example.org", "10.1.0.0/16"] }`. */
  network?: api.NetworkPolicy | undefined;
  /**
   * Headers that are added to requests on their way out, by host, so that they never enter the sandbox:
   * `{ "api.example.com": { header: "Authorization", value: "Bearer …" } }`, or `ref` for one that `client.secrets` keeps.
   */
  secrets?: api.Secrets | undefined;
  /**
   * What Python in it calls as `from tools import …`: functions of this program, made by `tool`, an object of namespaces to
   * such functions, `OpenAPI`, `MCPServer`, and names of tools that the server's settings declare. Functions are called here
   * as long as this program lives and until `kill`; they don't keep it running.
   */
  tools?: readonly ToolSource[] | undefined;
  /** Which calls are carried out: `{ approve: "risky", rules: [{ tool: "crm.delete_*", action: "deny" }] }`. Default: all. */
  toolPolicy?: api.ToolPolicy | undefined;
  /** Handed to the server as it is; one that can't do it answers 400 or 501. */
  volumes?: unknown;
  /** Make random state new; false keeps what the template had. Default: true. */
  reseed?: boolean | undefined;
  /**
   * For 24 hours the same key with the same options stands for the same sandbox. Default: a new one, which covers the
   * tries that the call makes itself when its connection breaks.
   */
  idempotencyKey?: string | undefined;
}

/** How `Sandbox.runCode` runs code. */
export interface SandboxRunOptions extends RunOptions {
  /** "python", or one of `Sandbox.languages`, which run once, keep no state and call none of the callbacks. */
  language?: string | undefined;
}

/** What a code context is to be. */
export interface CreateContextOptions extends CallOptions {
  /** Default: "python". */
  language?: string | undefined;
  /** The folder it starts in. Default: /workspace. */
  cwd?: string | undefined;
  /** Variables beside those of the sandbox. */
  envs?: Record<string, string> | undefined;
  /** An id of your own. Default: the server chooses. */
  id?: string | undefined;
}

/** How a sandbox is copied. */
export interface ForkOptions extends CallOptions {
  /** Strings for the copies, on top of the parent's. */
  metadata?: Record<string, string> | undefined;
  /** Variables for new processes, on top of the parent's. */
  envs?: Record<string, string> | undefined;
  /** The copies' lives from now, in seconds. Default: the parent's. */
  ttlSeconds?: number | undefined;
  /** Make random state new in each. Default: true. */
  reseed?: boolean | undefined;
  /** Don't wait for running cells: every copy goes on with them. */
  carryRunning?: boolean | undefined;
}

/** What changes of a sandbox's life; the rest stays. */
export interface LifecycleChanges extends CallOptions {
  /** So many seconds from now. */
  ttlSeconds?: number | undefined;
  /** Hibernate it when nobody calls for so many seconds; 0 for never. */
  idleTimeoutSeconds?: number | undefined;
  /** Hibernate instead of kill when its life is over. */
  persistent?: boolean | undefined;
}

/** How running cells are taken. */
export interface CarryOptions extends CallOptions {
  /** Don't wait for running cells: they go on. */
  carryRunning?: boolean | undefined;
}

/**
 * A Linux of its own with a warm Python interpreter. Made by `create`, found by `get` and `list`. With `await using` it is
 * killed at the end.
 */
export class Sandbox implements AsyncDisposable {
  /** Its files. */
  readonly filesystem: Filesystem;
  /** Its commands. */
  readonly commands: Commands;
  /** Its terminals. */
  readonly pty: Pty;
  /** What it may reach, and what it tried. */
  readonly network: Network;
  /** The functions outside that Python in it can call. */
  readonly tools: Tools;
  readonly #client: Client;
  readonly #path: string;
  #info: api.SandboxInfo;

  /** A handle on a sandbox; nothing is asked or made. */
  constructor(client: Client, info: api.SandboxInfo) {
    this.#client = client;
    this.#info = info;
    this.#path = `/sandboxes/${segment("sandbox id", info.id)}`;
    this.filesystem = new Filesystem(client, info.id);
    this.commands = new Commands(client, info.id);
    this.pty = new Pty(client, this.#path, this.commands);
    this.network = new Network(client, this.#path);
    this.tools = new Tools(client, info.id, this.#path);
  }

  /**
   * Makes a sandbox; it answers when this returns.
   *
   * @param options what it is to be, and where, as for `Client`.
   * @param client the server and the key, apart.
   * @throws AuthError the key is missing or wrong.
   * @throws NotFoundError no such template or snapshot; the message has the nearest names.
   * @throws BadRequestError an option is out of bounds; `field` says which.
   * @throws ConflictError the `idempotencyKey` stands for a sandbox with other options, or for one that has ended.
   * @throws CapacityError no room.
   * @throws RateLimitError too many sandboxes; `retryAfter` says when to try again.
   * @throws NetworkError the server can't be reached.
   */
  static async create(options: CreateOptions & ClientOptions = {}, client: Client | ClientOptions = options): Promise<Sandbox> {
    const o = camel(options);
    const shared = Client.shared(client);
    const tools = Toolset.of(o.tools, o.toolPolicy);
    const snapshot = typeof o.fromSnapshot === "object" ? o.fromSnapshot.id : o.fromSnapshot;
    const json = {
      template: snapshot === undefined ? o.template ?? "ubuntu-24.04" : undefined,
      from_snapshot: snapshot,
      ttl_seconds: o.ttlSeconds,
      idle_timeout_seconds: o.idleTimeoutSeconds,
      persistent: o.persistent || undefined,
      metadata: o.metadata,
      envs: o.envs,
      cpu: o.cpu,
      memory_mb: o.memoryMb,
      disk_mb: o.diskMb,
      pids: o.pids,
      network: o.network,
      secrets: o.secrets,
      tools: tools?.wire,
      volumes: o.volumes,
      reseed: o.reseed,
    };
    const headers = { "Idempotency-Key": o.idempotencyKey ?? crypto.randomUUID() };
    const call: Call = { method: "POST", path: "/sandboxes", json, headers, quietSeconds: CREATE_SECONDS, repeatable: true, signal: o.signal };
    const made = new Sandbox(shared, (await shared.connection.send(call)).object<api.SandboxInfo>());
    try {
      if (tools !== undefined) await made.tools.connect(tools.functions);
    } catch (error) {
      await made.kill();
      throw error;
    }
    return made;
  }

  /**
   * The sandbox with this id.
   *
   * @throws NotFoundError there is none; the message has the nearest ids.
   */
  static async get(id: string, options: Client | (ClientOptions & CallOptions) = {}): Promise<Sandbox> {
    return Client.shared(options).sandboxes.get(id, options instanceof Client ? {} : { signal: options.signal });
  }

  /** The sandboxes of the key's workspace, the newest first; fetched page by page. */
  static async list(options: Client | (ListOptions & ClientOptions) = {}): Promise<Sandbox[]> {
    return Client.shared(options).sandboxes.list(options instanceof Client ? {} : options);
  }

  /** A handle on a sandbox as it was described before; nothing is asked. */
  static fromInfo(info: api.SandboxInfo, client: Client): Sandbox {
    return new Sandbox(client, info);
  }

  /** What the server last said of it, in the API's own words; `refresh` asks anew. */
  get info(): api.SandboxInfo {
    return this.#info;
  }
  /** Its id. */
  get id(): string {
    return this.#info.id;
  }
  /** The template it was made from. */
  get template(): string {
    return this.#info.template;
  }
  /** Its state as last heard. */
  get status(): api.Status {
    return this.#info.status;
  }
  /** The strings it was created with. */
  get metadata(): Record<string, string> {
    return this.#info.metadata ?? {};
  }
  /** When it was made. */
  get createdAt(): Date {
    return new Date(this.#info.created_at);
  }
  /** When its life is over, as last heard. */
  get expiresAt(): Date {
    return new Date(this.#info.expires_at);
  }

  /**
   * Asks the server for its state anew; the answer is also in `info` from then on.
   *
   * @throws NotFoundError it is gone.
   */
  async refresh(options: CallOptions = {}): Promise<api.SandboxInfo> {
    this.#info = (await this.#send("GET", "", { repeatable: true, ...options })).object<api.SandboxInfo>();
    return this.#info;
  }

  // Code

  /**
   * Runs a cell in the context "default", which keeps its state from call to call.
   *
   * @param options how it runs, or its language alone.
   * @throws what `CodeContext.runCode` does.
   */
  async runCode(code: string, options: string | SandboxRunOptions = {}): Promise<Execution> {
    const o = typeof options === "string" ? { language: options } : options;
    const language = languageOf(o.language ?? "python");
    if (language === "python") return new CodeContext(this.#client, this.id, DEFAULT_CONTEXT).runCode(code, o);
    const deadline = seconds("timeoutSeconds", o.timeoutSeconds ?? 30);
    const answer = await this.#send("POST", "/repl", {
      json: { language, code: text("code", code), timeout_ms: Math.max(1, Math.round(deadline * 1000)) },
      quietSeconds: Math.min(deadline + MARGIN_SECONDS, LONGEST_ANSWER_SECONDS),
      runsCode: true,
      signal: o.signal,
    });
    return Execution.fromWire(answer.object());
  }

  /** The languages that `runCode` knows. */
  async languages(options: CallOptions = {}): Promise<string[]> {
    return (await this.#send("GET", "/repl/languages", { repeatable: true, ...options })).object<api.Languages>().languages;
  }

  /**
   * Makes an interpreter of its own that keeps its state.
   *
   * @param options what it is to be, or its language alone.
   * @throws BadRequestError the template has no such language.
   * @throws RateLimitError there are too many.
   */
  async createCodeContext(options: string | CreateContextOptions = {}): Promise<CodeContext> {
    const { language = "python", cwd, envs, id, signal } = typeof options === "string" ? { language: options } : options;
    const json: api.CreateContextRequest = { language: languageOf(language), ...given({ cwd, envs, id }) };
    const made = (await this.#send("POST", "/repl/sessions", { json, quietSeconds: 60, signal })).object<api.Context>();
    return new CodeContext(this.#client, this.id, made.id, made.language);
  }

  /** The interpreters there are. */
  async contexts(options: CallOptions = {}): Promise<CodeContext[]> {
    const found = (await this.#send("GET", "/repl/sessions", { repeatable: true, ...options })).items<api.Context>("contexts", "sessions");
    return found.map((info) => new CodeContext(this.#client, this.id, info.id, info.language));
  }

  /**
   * The interpreter with this id; "default", the default, is made on first use.
   *
   * @throws NotFoundError there is none; the message has those there are.
   */
  async context(id: string = DEFAULT_CONTEXT, options: CallOptions = {}): Promise<CodeContext> {
    const found = new CodeContext(this.#client, this.id, id);
    if (id === DEFAULT_CONTEXT) return found;
    const info = await found.info(options);
    return new CodeContext(this.#client, this.id, info.id, info.language);
  }

  // Commands

  /**
   * Runs a command and waits for it.
   *
   * @param cmd a string for the shell (bash), or an array of arguments.
   * @throws SandboxTimeout it did not end in time; has the output so far.
   * @throws CommandError with `check`.
   * @throws NotFoundError no such sandbox.
   * @throws NetworkError the connection broke and could not be made again; the command may have run.
   */
  async exec(cmd: Command, options: ExecOptions = {}): Promise<ExecResult> {
    return this.commands.exec(cmd, options);
  }

  /**
   * Runs a command, hands on its output as it comes, and returns its exit code. Its caller's leaving ends it: use
   * `commands.run` for one that is to survive a broken connection.
   *
   * @throws what `exec` does.
   */
  async execStream(cmd: Command, options: ExecOptions & OutputCallbacks = {}): Promise<number> {
    return this.commands.execStream(cmd, options);
  }

  // Life

  /** Ends the sandbox and all in it. Does nothing when it is gone. */
  async kill(options: CallOptions = {}): Promise<void> {
    this.tools.close();
    try {
      await this.#send("DELETE", "", { quietSeconds: 60, repeatable: true, ...options });
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
    }
  }

  async [asyncDispose](): Promise<void> {
    await this.kill();
  }

  /** How long it has, and how long nobody has called. */
  async lifecycle(options: CallOptions = {}): Promise<api.Lifecycle> {
    return (await this.#send("GET", "/lifecycle", { repeatable: true, ...options })).object<api.Lifecycle>();
  }

  /**
   * Changes how long it has and what happens then.
   *
   * @throws BadRequestError more than the server's ceiling.
   */
  async setLifecycle(changes: LifecycleChanges): Promise<api.Lifecycle> {
    const { ttlSeconds, idleTimeoutSeconds, persistent, signal } = changes;
    const json = { ttl_seconds: ttlSeconds, idle_timeout_seconds: idleTimeoutSeconds, persistent };
    return (await this.#send("PATCH", "/lifecycle", { json, repeatable: true, signal })).object<api.Lifecycle>();
  }

  /** Gives it so many seconds from now. Throws as `setLifecycle`. */
  async setTtl(ttlSeconds: number, options: CallOptions = {}): Promise<api.Lifecycle> {
    return this.setLifecycle({ ttlSeconds, ...options });
  }

  /** Whether it is hibernated instead of killed when its life is over. */
  async setPersistent(persistent: boolean, options: CallOptions = {}): Promise<api.Lifecycle> {
    return this.setLifecycle({ persistent, ...options });
  }

  /**
   * What it may use and uses now, and how often it met each limit.
   *
   * @throws ConflictError it is being created, or has ended.
   */
  async metrics(options: CallOptions = {}): Promise<api.Metrics> {
    return (await this.#send("GET", "/metrics", { repeatable: true, ...options })).object<api.Metrics>();
  }

  /**
   * Stops all in it until `resume`; memory is kept, and also written to disk, so that it survives a reboot. Cells and
   * commands are refused meanwhile (ConflictError).
   */
  async pause(options: CallOptions = {}): Promise<void> {
    await this.#send("POST", "/pause", { quietSeconds: SNAPSHOT_SECONDS, ...options });
  }

  /** Lets it go on after `pause`. */
  async resume(options: CallOptions = {}): Promise<void> {
    await this.#send("POST", "/resume", { quietSeconds: SNAPSHOT_SECONDS, ...options });
  }

  /**
   * Saves it to disk and frees its memory; any call wakes it.
   *
   * @throws ConflictError cells were still running after 10 s.
   * @throws CapacityError the server's disk can't hold it; it goes on running.
   */
  async hibernate(options: CarryOptions = {}): Promise<void> {
    const json = options.carryRunning ? { carry_running: true } : undefined;
    await this.#send("POST", "/hibernate", { json, quietSeconds: SNAPSHOT_SECONDS, signal: options.signal });
  }

  /** Brings it back after `hibernate`. */
  async wake(options: CallOptions = {}): Promise<void> {
    await this.#send("POST", "/wake", { quietSeconds: SNAPSHOT_SECONDS, ...options });
  }

  /**
   * Keeps its files, memory, processes and contexts as they are now, for `create({ fromSnapshot })`. It goes on.
   *
   * @param options `name` is what to call it, `metadata` strings to keep with it, `ttlSeconds` after which it is removed;
   *   without, it stays until somebody removes it.
   * @throws ConflictError cells were still running after 10 s.
   * @throws CapacityError the server's disk can't hold it.
   */
  async snapshot(options: { name?: string | undefined; metadata?: Record<string, string> | undefined; ttlSeconds?: number | undefined } & CarryOptions = {}): Promise<api.Snapshot> {
    const { name, metadata, ttlSeconds, carryRunning, signal } = options;
    const json = { name, metadata, carry_running: carryRunning, ttl_seconds: ttlSeconds };
    return (await this.#send("POST", "/snapshots", { json, quietSeconds: SNAPSHOT_SECONDS, signal })).object<api.Snapshot>();
  }

  /**
   * Copies it as it is now, with its files, processes, interpreters and their variables. It goes on. Each copy has memory
   * of its own, as much as the parent uses. With a `count`, 1 to 16, a list of so many.
   *
   * @throws ConflictError cells were still running after 10 s.
   * @throws CapacityError there is no memory for so many, or no disk; nothing was copied.
   */
  fork(options?: ForkOptions): Promise<Sandbox>;
  fork(count: number, options?: ForkOptions): Promise<Sandbox[]>;
  async fork(first?: number | ForkOptions, second?: ForkOptions): Promise<Sandbox | Sandbox[]> {
    const count = typeof first === "number" ? first : undefined;
    const made = await this.#copies("/fork", count, typeof first === "number" ? second : first);
    return count === undefined ? made[0]! : made;
  }

  /** Copies it into a tree of `count` branches, 2 when left out, of which `promote` keeps one. Throws as `fork`. */
  async forkTree(options: { count?: number | undefined } & ForkOptions = {}): Promise<Sandbox[]> {
    return this.#copies("/fork-tree", options.count ?? 2, options);
  }

  /**
   * Makes this branch of a tree the one that stays.
   *
   * @param options `cleanupSiblings` ends the others; `treeId` is the tree, the sandbox's own when left out.
   */
  async promote(options: { cleanupSiblings?: boolean | undefined; treeId?: string | undefined } & CallOptions = {}): Promise<api.Promotion> {
    const { cleanupSiblings = false, treeId, signal } = options;
    const json = { cleanup_siblings: cleanupSiblings, tree_id: treeId };
    return (await this.#send("POST", "/promote", { json, quietSeconds: SNAPSHOT_SECONDS, signal })).object<api.Promotion>();
  }

  /**
   * Tries commands side by side, each in a copy of this sandbox, and keeps the best.
   *
   * @param candidates 1 to 16 commands.
   * @throws ExploreError none could be chosen; has the outcomes.
   * @throws what `fork` does.
   */
  async explore(candidates: readonly (string | Candidate)[], options: ExploreOptions = {}): Promise<Exploration> {
    return explore(this, candidates, options);
  }

  // Ways in and what it says

  /**
   * The address of a server in the sandbox; no call is made. It opens nothing: a port is private unless `namePort` made
   * it public. Send the key as `Authorization: Bearer pds_…`, or use `signedPreviewUrl` for a browser.
   *
   * @param scheme "http" or "https"; that of the API when left out, and "http" below localhost.
   */
  previewUrl(port: number, scheme?: "http" | "https"): string {
    const host = this.#info.preview_host || this.#client.previewHost;
    const usual = host.split(":")[0] === "localhost" ? "http" : new URL(this.#client.apiUrl).protocol.slice(0, -1);
    return `${scheme ?? usual}://${portOf(port)}-${this.id}.${host}/`;
  }

  /**
   * An address with a token in it, which opens a port to whoever has it: until it expires, the client's key ends, or the
   * sandbox does. A browser is led on to the port's own address.
   *
   * @param options `ttlSeconds` is at most 604800, which are 7 days, and 3600 when left out; `paths` are what it opens,
   *   each with all below it, and all when left out.
   */
  async signedPreviewUrl(port: number, options: { ttlSeconds?: number | undefined; paths?: readonly string[] | undefined } & CallOptions = {}): Promise<string> {
    const { ttlSeconds = 3600, paths, signal } = options;
    return (await this.#send("POST", "/preview-token", { json: { port: portOf(port), ttl_seconds: ttlSeconds, paths }, signal })).object<api.PreviewToken>().url;
  }

  /** What listens in it, and what was named, by number. It isn't woken: in one that sleeps nothing listens. */
  async ports(options: CallOptions = {}): Promise<api.Port[]> {
    return (await this.#send("GET", "/ports", { repeatable: true, ...options })).items<api.Port>("ports");
  }

  /**
   * Names a port, or makes it `public`, which opens it to everybody who knows its address. What was said of it before is
   * replaced; copies of the sandbox don't have it.
   */
  async namePort(port: number, options: { label?: string | undefined; public?: boolean | undefined } & CallOptions = {}): Promise<api.Port> {
    const { label = "", public: open = false, signal } = options;
    return (await this.#send("POST", "/ports", { json: { port: portOf(port), label, public: open }, repeatable: true, signal })).object<api.Port>();
  }

  /**
   * Forgets what was said of a port. What listens goes on.
   *
   * @throws NotFoundError nothing was said of it.
   */
  async forgetPort(port: number, options: CallOptions = {}): Promise<void> {
    await this.#send("DELETE", `/ports/${portOf(port)}`, options);
  }

  /** `previewUrl` for each of `ports` on which something listens. */
  async previewUrls(options: CallOptions = {}): Promise<Record<number, string>> {
    return Object.fromEntries((await this.ports(options)).filter((at) => at.listening).map(({ port }) => [port, this.previewUrl(port)]));
  }

  /**
   * Connects to a port of it, for any protocol over TCP. One that sleeps is woken. A browser can't hold back what comes: what
   * is not read waits in the page's memory.
   *
   * @param options `signal` ends the connecting; what is connected is ended by `close`.
   * @throws ServerError nothing listens there (status 502).
   */
  async dial(port: number, options: CallOptions = {}): Promise<PortConnection> {
    return dial(this.#client.connection, `${this.#path}/ports/${portOf(port)}/connect`, port, options.signal);
  }

  /**
   * Lets a port of this machine lead to one of the sandbox, for any protocol over TCP, until it is closed. Not in browsers.
   *
   * @param options `localPort` is the port of this machine, any that is free when left out; `host` the address to listen
   *   on, 127.0.0.1 when left out: any but a loopback address lets others in; `onError` hears why a connection could not
   *   be made, or broke.
   * @throws Error the port of this machine is taken.
   */
  async forward(port: number, options: { localPort?: number | undefined; host?: string | undefined; onError?: ((error: unknown) => void) | undefined } = {}): Promise<Forwarding> {
    const { localPort = 0, host = "127.0.0.1", onError = () => undefined } = options;
    portOf(port);
    return forward(() => this.dial(port), host, localPort, onError);
  }

  /**
   * What happened to it, the oldest first; also for a while after it has ended. With `follow` it goes on until it has
   * ended.
   */
  events(options: EventsOptions = {}): AsyncGenerator<api.LifeEvent, void, undefined> {
    return lifeEvents(this.#client.connection, `${this.#path}/events`, options);
  }

  /**
   * The last lines of its console and of the log of the agent in it, at most 2000 and 256 KiB, without their ends. With
   * `follow` it goes on with those that come, until the sandbox has ended.
   *
   * @param options `stream` is "stdout", the console; "stderr", the agent's log; or "both", the default.
   * @throws ConflictError it is paused, or has ended.
   */
  async *logs(options: { stream?: "stdout" | "stderr" | "both" | undefined; follow?: boolean | undefined } & CallOptions = {}): AsyncGenerator<string, void, undefined> {
    const { stream = "both", follow = false, signal } = options;
    const query = [["stream", stream], ["follow", follow ? "1" : "0"]] as const;
    if (follow) {
      yield* this.#client.connection.stayOn({ method: "GET", path: `${this.#path}/logs`, query, signal }, (event) => (event.data as unknown as api.LogLine).line);
      return;
    }
    const lines = (await this.#send("GET", "/logs", { query, accept: "text/plain", repeatable: true, signal })).text().split("\n");
    if (lines.at(-1) === "") lines.pop();
    yield* lines;
  }

  #send(method: Call["method"], verb: string, rest: Omit<Call, "method" | "path">) {
    return this.#client.connection.send({ method, path: this.#path + verb, ...rest });
  }

  async #copies(verb: "/fork" | "/fork-tree", count: number | undefined, options: ForkOptions = {}): Promise<Sandbox[]> {
    const { metadata, envs, ttlSeconds, reseed, carryRunning, signal } = options;
    const json = { count, metadata, envs, ttl_seconds: ttlSeconds, reseed, carry_running: carryRunning };
    const { children } = (await this.#send("POST", verb, { json, quietSeconds: SNAPSHOT_SECONDS, signal })).object<api.Fork>();
    const copies = children.map((child) => new Sandbox(this.#client, child));
    for (const copy of copies) await this.tools.serve(copy.tools);
    return copies;
  }
}

function portOf(port: number): number {
  if (!Number.isInteger(port) || port < 1 || port > 65535) throw new RangeError(`port must be between 1 and 65535, not ${port}`);
  return port;
}

/** "py" and "python3" mean "python", "shell" means "bash". */
function languageOf(language: string): string {
  const name = text("language", language).toLowerCase();
  if (name === "py" || name === "python3") return "python";
  return name === "shell" || name === "sh" ? "bash" : name;
}

/** Options under the names of the API mean the same: `ttl_seconds` is `ttlSeconds`. */
function camel(options: CreateOptions): CreateOptions {
  const named = Object.entries(options).map(([name, value]) => [name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()), value]);
  return Object.fromEntries(named) as CreateOptions;
}

/** What is there of an object's fields. */
function given<T extends object>(fields: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as { [K in keyof T]?: Exclude<T[K], undefined> };
}
