/** Agents: a model that does a task by writing Python in a sandbox. */

import type * as api from "./api.js";
import { Client, type ClientOptions } from "./client.js";
import { localFiles } from "./config.js";
import { segment, text, type Call, type CallOptions } from "./connection.js";
import { Connector } from "./connector.js";
import { ConflictError } from "./errors.js";
import { toBase64, type RawEvent } from "./events.js";
import { Toolset, type Tool, type ToolSource } from "./functions.js";

const CANCEL_SECONDS = 180; // a sandbox may be kept as a snapshot at the end

/** What bounds a run. Left out: the server's own default. */
export interface AgentLimits {
  /** Replies of the model. Default: 20. */
  maxTurns?: number | undefined;
  /** Cells that it runs. Default: 40. */
  maxCells?: number | undefined;
  /** Seconds on the wall clock. Default: 900. */
  maxSeconds?: number | undefined;
  /** Tokens of all requests and replies. Default: 500 000. */
  maxTokens?: number | undefined;
  /** US dollars; needs a `price`. Default: none. */
  maxCostUsd?: number | undefined;
  /** Seconds of one cell. Default: 15. */
  cellSeconds?: number | undefined;
  /** Tokens of what the cells of one turn show the model. Default: 4000. */
  observationTokens?: number | undefined;
  /** Tokens of one reply. Default: 8192. */
  replyTokens?: number | undefined;
  /** Tokens of the prompt for the functions that are `tools`; what is more is found by `tools.search`. Default: 2000. */
  toolTokens?: number | undefined;
  /** Above so many tokens, what was seen long ago is shortened. Default: 100 000. */
  conversationTokens?: number | undefined;
}

/** What a model costs, in US dollars a million tokens. */
export interface AgentPrice {
  /** Of what it is told. */
  input: number;
  /** Of what it says. */
  output: number;
  /** Of what the provider has kept of earlier requests. Default: as `input`. */
  cacheRead?: number | undefined;
  /** Of what the provider keeps for later ones. Default: as `input`. */
  cacheWrite?: number | undefined;
}

/** What an agent is to be. */
export interface AgentOptions extends ClientOptions {
  /** "openai:NAME" (anything that speaks chat completions) or "anthropic:NAME". Default: the server's own. */
  model?: string | undefined;
  /** Of a provider elsewhere than the server has it; needs an admin key. */
  baseUrl?: string | undefined;
  /** Key for the provider, for these runs; the server does not store it. Default: the server's own. */
  modelKey?: string | undefined;
  /** How the model writes code: "text", in fences, or "tool", as calls of a tool. Default: "text". */
  dialect?: "text" | "tool" | undefined;
  /** The model is shown figures; otherwise they are told in words. Default: true. */
  vision?: boolean | undefined;
  /** Added to the system prompt. */
  instructions?: string | undefined;
  /** Of the sandbox. Default: "code-interpreter". */
  template?: string | undefined;
  /** A snapshot to make the sandbox from, instead of a template: its files are there, its variables are not. */
  fromSnapshot?: string | undefined;
  /** Cores of the sandbox. Default: the template's, as for the next three. */
  cpu?: number | undefined;
  /** MiB of its memory. */
  memoryMb?: number | undefined;
  /** MiB of its writable disk. */
  diskMb?: number | undefined;
  /** Processes and threads in it. */
  pids?: number | undefined;
  /** Environment of the code. It stands in the transcript. */
  envs?: Record<string, string> | undefined;
  /** What the code may reach. Default: nothing. The model is told. */
  network?: api.NetworkPolicy | undefined;
  /** Headers that are added to its requests on their way out, by host, as for `Sandbox.create`. The model is told the hosts. */
  secrets?: api.Secrets | undefined;
  /** What the model's code can call outside of the sandbox, as for `Sandbox.create`. Default: the tools of `sandboxId`, or none. */
  tools?: readonly ToolSource[] | undefined;
  /** Which calls are carried out, and which somebody is asked about, as for `Sandbox.create`. */
  toolPolicy?: api.ToolPolicy | undefined;
  /** What becomes of the sandbox at the end. Default: "kill". */
  keep?: "kill" | "keep" | "snapshot" | undefined;
  /** What bounds a run. */
  limits?: AgentLimits | undefined;
  /** What the model costs; needed for `maxCostUsd`. */
  price?: AgentPrice | undefined;
}

/** What a run is to begin with. */
export interface AgentRunOptions extends CallOptions {
  /** Put into /workspace before: paths of files here (not in browsers), or an object of names to contents. */
  files?: readonly string[] | Readonly<Record<string, string | Uint8Array>> | undefined;
  /** Work in this sandbox, which is kept. Default: a new one. */
  sandboxId?: string | undefined;
  /** Files in the sandbox, absolute or below /workspace, that are loaded as tables before the model is asked. */
  data?: readonly string[] | undefined;
  /** A run that has ended, whose sandbox is still there: go on in it, with its variables. */
  follows?: string | undefined;
  /** Labels of your own. */
  metadata?: Record<string, string> | undefined;
}

/** What hears of a run. */
export interface AgentWaitOptions extends CallOptions {
  /** Called with each event; what it returns is waited for, and what it throws ends the waiting. */
  onEvent?: ((event: api.AgentEvent) => unknown) | undefined;
}

/** How a run is to be done again. */
export interface AgentReplayOptions extends Pick<AgentOptions, "keep" | "secrets">, AgentWaitOptions {
  /** For a run that worked in a sandbox of yours: one in which its files are again. */
  sandboxId?: string | undefined;
  /** For a run that follows another one: the replay of that one. */
  follows?: string | undefined;
}

/** How a run is to go on from one of its turns. */
export interface AgentForkOptions
  extends Pick<AgentOptions, "model" | "baseUrl" | "modelKey" | "instructions" | "vision" | "keep" | "limits" | "price" | "secrets">,
    AgentWaitOptions {
  /** The turn whose reply is to be another one, from 1. */
  at: number;
  /** Told to the model before that turn. */
  task?: string | undefined;
  /** Labels of your own. */
  metadata?: Record<string, string> | undefined;
}

/**
 * An agent: a model that does tasks by writing Python, each in a sandbox. The loop runs on the server, so a run goes on
 * when this program ends.
 *
 * ```ts
 * const agent = new Agent("openai:gpt-4o");
 * const run = await agent.run("Which region sold most?", { files: ["sales.csv"] });
 * console.log(run.answer);
 * ```
 */
export class Agent {
  readonly #client: Client;
  readonly #options: AgentOptions;
  readonly #tools: Toolset | undefined;
  readonly #program: Program;

  /**
   * @param model its name, or all options in one.
   * @param options what it is to be, and where, as for `Client`.
   */
  constructor(model?: string | AgentOptions, options: AgentOptions = {}) {
    this.#options = typeof model === "object" ? model : { ...options, model: model ?? options.model };
    this.#client = Client.shared(this.#options);
    this.#tools = Toolset.of(this.#options.tools, this.#options.toolPolicy);
    this.#program = new Program(this.#tools?.functions);
  }

  /**
   * Does a task and waits for the end of it. A run that ends without an answer is no error: look at `reason`. When the
   * signal ends the waiting, the run goes on: `cancel` ends it.
   *
   * @param task what is to be done, in words.
   * @throws BadRequestError something of it cannot work; `field` says what.
   * @throws CapacityError the server has no room.
   */
  async run(task: string, options: AgentRunOptions & AgentWaitOptions = {}): Promise<AgentRun> {
    const run = await this.start(task, options);
    await run.wait(options);
    return run;
  }

  /** As `run`, without waiting: the run goes on by itself. */
  async start(task: string, options: AgentRunOptions = {}): Promise<AgentRun> {
    const { model, baseUrl, modelKey, dialect, vision, instructions, keep, limits, price } = this.#options;
    const { template, fromSnapshot, cpu, memoryMb, diskMb, pids, envs, network, secrets } = this.#options;
    const { files, sandboxId, data, follows, metadata, signal } = options;
    const made = { template, from_snapshot: fromSnapshot, cpu, memory_mb: memoryMb, disk_mb: diskMb, pids, envs, network, secrets, keep };
    if (follows !== undefined && this.#tools === undefined) this.#program.mustHave((await this.get(follows, { signal })).info); // it has those of the run before
    const own = follows !== undefined ? { follows: text("follows", follows) } : sandboxId === undefined ? made : { sandbox_id: sandboxId };
    const json = {
      task: text("task", task),
      model,
      base_url: baseUrl,
      dialect,
      vision,
      instructions,
      ...own,
      tools: this.#tools?.wire,
      files: contents(files),
      data,
      limits: named(limits),
      price: named(price),
      metadata,
    };
    const headers: Record<string, string> = modelKey === undefined ? {} : { "X-Model-Key": text("modelKey", modelKey) };
    const answer = await this.#client.connection.send({ method: "POST", path: "/agents", json, headers, signal });
    const run = new AgentRun(this.#client, answer.object<api.AgentRun>(), this.#program);
    await this.#program.serve(this.#client, run.info);
    return run;
  }

  /**
   * The run with this id. Replays and forks of it call the functions of this agent. So does the run itself from then on, if
   * it goes on and calls some of their names: those of a program that was started again.
   *
   * @throws NotFoundError there is none.
   */
  async get(id: string, options: CallOptions = {}): Promise<AgentRun> {
    const call: Call = { method: "GET", path: `/agents/${segment("run id", id)}`, repeatable: true, ...options };
    const run = new AgentRun(this.#client, (await this.#client.connection.send(call)).object<api.AgentRun>(), this.#program);
    if (run.info.functions?.some((name) => this.#program.functions.has(name))) await this.#program.serve(this.#client, run.info);
    return run;
  }

  /** The runs of the workspace, the newest first; at most `limit`, 100 when left out. */
  async runs(options: { limit?: number | undefined } & CallOptions = {}): Promise<AgentRun[]> {
    const { limit = 100, signal } = options;
    const call: Call = { method: "GET", path: "/agents", query: [["limit", String(limit)]], repeatable: true, signal };
    return (await this.#client.connection.send(call)).items<api.AgentRun>("runs").map((info) => new AgentRun(this.#client, info, this.#program));
  }
}

/** Functions of this program, and the runs whose code calls them. */
export class Program {
  readonly functions: ReadonlyMap<string, Tool>;
  readonly #lines = new Map<string, Connector>(); // by run; the server ends each with its run

  constructor(functions: ReadonlyMap<string, Tool> = new Map()) {
    this.functions = functions;
  }

  /** Has a run's code call them from now on, unless it does already. */
  async serve(client: Client, { id, status }: api.AgentRun): Promise<void> {
    for (const [run, line] of this.#lines) if (!line.connects) this.#lines.delete(run);
    if (this.functions.size === 0 || status === "ended" || this.#lines.has(id)) return;
    const line = new Connector(client.connection, `/agents/${id}/connect`, this.functions);
    this.#lines.set(id, line);
    await line.ready.catch((error: unknown) => {
      if (!(error instanceof ConflictError)) throw error; // it has ended already
    });
  }

  /** Throws when the code of a run calls functions of a program that are not here. */
  mustHave({ id, functions = [] }: api.AgentRun): void {
    const missing = functions.filter((name) => !this.functions.has(name));
    if (missing.length === 0) return;
    throw new TypeError(`the code of ${id} calls functions of a program that are not here: ${missing.join(", ")}. Give them: new Agent({ tools: […] }).get("${id}")`);
  }
}

/** The run of an agent. */
export class AgentRun {
  readonly #client: Client;
  readonly #path: string;
  readonly #program: Program;
  #info: api.AgentRun;

  /** A handle on a run; nothing is asked or started. */
  constructor(client: Client, info: api.AgentRun, program = new Program()) {
    this.#client = client;
    this.#program = program;
    this.#info = info;
    this.#path = `/agents/${segment("run id", info.id)}`;
  }

  /** What the server last said of it, in the API's own words; `refresh` asks anew. */
  get info(): api.AgentRun {
    return this.#info;
  }
  /** Its id. */
  get id(): string {
    return this.#info.id;
  }
  /** The final answer; undefined without one. */
  get answer(): string | undefined {
    return this.#info.answer;
  }
  /** Why the run ended: "answer", "max_turns", "stuck", …; undefined while it goes on. */
  get reason(): string | undefined {
    return this.#info.reason || undefined;
  }
  /** The sandbox that it works in. */
  get sandboxId(): string | undefined {
    return this.#info.sandbox_id || undefined;
  }

  /**
   * What happens in the run, until it ends. A broken connection is taken up again where it broke.
   *
   * @param options `after`: only events with a higher number, and those without one that happen from now on.
   */
  async *events(options: { after?: number | undefined } & CallOptions = {}): AsyncGenerator<api.AgentEvent, void, undefined> {
    const { after = 0, signal } = options;
    const call: Call = { method: "GET", path: `${this.#path}/events`, query: [["after", String(after)]], signal };
    const read = (event: RawEvent) => event.data as unknown as api.AgentEvent;
    for await (const event of this.#client.connection.stayOn(call, read, (event) => event.type === "ended")) {
      if (event.type === "ended") this.#info = event.run ?? this.#info;
      yield event;
    }
  }

  /** Waits for the end and returns the answer, undefined without one. */
  async wait(options: AgentWaitOptions = {}): Promise<string | undefined> {
    const { onEvent, signal } = options;
    for await (const event of this.events({ signal })) await onEvent?.(event);
    return this.answer;
  }

  /**
   * Runs the cells of this run again in a new sandbox, with its replies and no model, and waits for the end. Compare the
   * `digest` of the "outcome" events: it is the same where the same happened, times aside. Functions of its agent are
   * called again.
   *
   * @param options `keep`: what becomes of the sandbox at the end, "kill" when left out; `secrets`: needed when the run
   *   had some by value, which is not stored; `sandboxId`: for a run that worked in a sandbox of yours, such as an
   *   analyst's, one in which its files are again; `follows`: for a run that follows another one, the replay of that one.
   * @throws BadRequestError the values of its secrets are missing, or its sandbox, or what it follows.
   * @throws TypeError its code calls functions of a program, which its agent here has not.
   */
  async replay(options: AgentReplayOptions = {}): Promise<AgentRun> {
    const { keep, secrets, sandboxId, follows, onEvent, signal } = options;
    return this.#again({ replay_of: this.id, keep, secrets, sandbox_id: sandboxId, follows }, {}, { onEvent, signal });
  }

  /**
   * Goes on from a turn of this run in another way, as a run of its own, and waits for the end. The cells before that turn
   * run again in a new sandbox, with the replies of that time, which cost nothing; the event "forked" names those of which
   * something else came. What is left out is as in this run. Functions of its agent are called again.
   *
   * @param options `at`: the turn whose reply is to be another one, from 1; `task`: told to the model before that turn.
   *   The turns before count for the limit `max_turns`. `secrets` are needed when the run had some by value, `baseUrl` or
   *   `model` when it had a `baseUrl`.
   * @throws BadRequestError this run has no such turn, or something that is needed is missing.
   * @throws TypeError its code calls functions of a program, which its agent here has not.
   */
  async fork(options: AgentForkOptions): Promise<AgentRun> {
    const { at, task, model, baseUrl, modelKey, instructions, vision, keep, limits, price, secrets, metadata, onEvent, signal } = options;
    const fork = { of: this.id, at, task };
    const json = { fork, model, base_url: baseUrl, instructions, vision, keep, limits: named(limits), price: named(price), secrets, metadata };
    return this.#again(json, modelKey === undefined ? {} : { "X-Model-Key": text("modelKey", modelKey) }, { onEvent, signal });
  }

  /** Starts another run of the same kind, whose code calls the same functions, and waits for its end. */
  async #again(json: object, headers: Record<string, string>, options: AgentWaitOptions): Promise<AgentRun> {
    this.#program.mustHave(this.#info);
    const answer = await this.#client.connection.send({ method: "POST", path: "/agents", json, headers, signal: options.signal });
    const run = new AgentRun(this.#client, answer.object<api.AgentRun>(), this.#program);
    await this.#program.serve(this.#client, run.info);
    await run.wait(options);
    return run;
  }

  /** All that is written of the run so far. */
  async transcript(options: CallOptions = {}): Promise<api.AgentEvent[]> {
    const call: Call = { method: "GET", path: `${this.#path}/events`, repeatable: true, ...options };
    return (await this.#client.connection.send(call)).items<api.AgentEvent>("events");
  }

  /** Brings `info` up to date. */
  async refresh(options: CallOptions = {}): Promise<api.AgentRun> {
    return (this.#info = (await this.#send("GET", "", { repeatable: true, ...options })).object<api.AgentRun>());
  }

  /** Ends the run; returns when it has ended. */
  async cancel(options: CallOptions = {}): Promise<void> {
    this.#info = (await this.#send("POST", "/cancel", { quietSeconds: CANCEL_SECONDS, repeatable: true, ...options })).object<api.AgentRun>();
  }

  /**
   * Removes a run that has ended, and its transcript.
   *
   * @throws ConflictError it has not ended.
   */
  async delete(options: CallOptions = {}): Promise<void> {
    await this.#send("DELETE", "", { repeatable: true, ...options });
  }

  /** A picture that a cell drew, by the name in its "outcome" event. */
  async figure(file: string, options: CallOptions = {}): Promise<Uint8Array> {
    return (await this.#send("GET", `/figures/${segment("file", file)}`, { accept: "image/*", repeatable: true, ...options })).bytes;
  }

  /** The run, and those that it follows, as a Jupyter notebook, which does it again beside the files. */
  async notebook(options: CallOptions = {}): Promise<Uint8Array> {
    return (await this.#send("GET", "/notebook", { accept: "application/x-ipynb+json", repeatable: true, ...options })).bytes;
  }

  /** The run, and those that it follows, as one page of HTML that needs nothing beside it. */
  async report(options: CallOptions = {}): Promise<string> {
    return new TextDecoder().decode((await this.#send("GET", "/report", { accept: "text/html", repeatable: true, ...options })).bytes);
  }

  #send(method: Call["method"], verb: string, rest: Omit<Call, "method" | "path">) {
    return this.#client.connection.send({ method, path: this.#path + verb, ...rest });
  }
}

/** Options in the API's names: `maxTurns` is max_turns. */
function named(options: AgentLimits | AgentPrice | undefined): Record<string, unknown> | undefined {
  return options && Object.fromEntries(Object.entries(options).map(([name, value]) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), value]));
}

function contents(files: AgentRunOptions["files"]): api.AgentFile[] | undefined {
  if (files === undefined) return undefined;
  if (typeof files !== "object" || files === null) throw new TypeError("files must be an array of paths, or an object of names to contents");
  const named: [string, string | Uint8Array][] = Array.isArray(files)
    ? files.map((path: string) => [path.split(/[/\\]/).at(-1)!, localFiles().readFileSync(text("a path of files", path))])
    : Object.entries(files as Record<string, string | Uint8Array>);
  return named.map(([path, data]) => ({ path, content: toBase64(typeof data === "string" ? new TextEncoder().encode(data) : data) }));
}
