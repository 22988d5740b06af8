/** Analysts: a model that answers questions about files of data, in one sandbox. */

import { Agent, type AgentOptions, type AgentRun, type AgentWaitOptions } from "./agent.js";
import type * as api from "./api.js";
import { Client } from "./client.js";
import { text, type CallOptions } from "./connection.js";
import { Sandbox } from "./sandbox.js";

const CELL_SECONDS = 120; // a table on disk takes its time

/** What an analyst is to be: what an agent is, but for what is of a new sandbox of each run. */
export interface AnalystOptions extends Omit<AgentOptions, "fromSnapshot" | "pids" | "envs" | "network" | "secrets" | "keep"> {
  /** The id of an analyst's run, whose sandbox is still there: go on after it. Instead of files. */
  follows?: string | undefined;
  /** Seconds that the sandbox lives after a question. Default: 3600. */
  ttlSeconds?: number | undefined;
}

/** What came of a question. */
export interface Answer {
  /** The model's words; undefined without an answer: see `run.reason` and `run.info.error`. */
  text: string | undefined;
  /** Pictures that its cells drew, PNG or JPEG, in order. */
  figures: Uint8Array[];
  /** The run. */
  run: AgentRun;
}

/**
 * Answers questions about files of data: a model writes Python, which runs in one sandbox, where each file is loaded once.
 *
 * ```ts
 * await using analyst = new Analyst(["sales.csv"], { model: "openai:gpt-4o" });
 * const answer = await analyst.ask("Plot revenue by month; which month is the peak?");
 * console.log(answer.text);
 * await analyst.ask("And without returns?");
 * ```
 *
 * CSV, TSV, Excel, Parquet, JSON and SQLite, of any size that its disk holds; how a file is written is found out, and
 * stands in `tables`. The sandbox is made by the first question, and ends with `close`.
 */
export class Analyst {
  readonly #client: Client;
  readonly #agent: Agent;
  readonly #options: AnalystOptions;
  readonly #files: ReadonlyMap<string, string | Uint8Array>;
  #last: AgentRun | undefined; // that the next question follows
  #run: AgentRun | undefined;
  #sandbox: Sandbox | undefined;
  #made = false;
  #tables: api.AgentTable[] = [];

  /**
   * @param files paths of files here (not in browsers), or an object of names to contents; none with `follows`.
   * @param options with which model it works, and where, as for `Agent`; `cellSeconds` of its limits is 120 when left out.
   */
  constructor(files: readonly string[] | Readonly<Record<string, string | Uint8Array>>, options: AnalystOptions = {}) {
    if (typeof files !== "object" || files === null) throw new TypeError("files must be an array of paths, or an object of names to contents");
    const named: [string, string | Uint8Array][] = Array.isArray(files)
      ? files.map((path: string) => [text("a path of files", path).split(/[/\\]/).at(-1)!, path])
      : Object.entries(files as Record<string, string | Uint8Array>).map(([name, data]) => [name, typeof data === "string" ? new TextEncoder().encode(data) : data]);
    this.#files = new Map(named);
    if (this.#files.size < named.length) throw new TypeError("two files have the same name");
    if (this.#files.size > 0 === (options.follows !== undefined)) throw new TypeError("give files, or a run to follow");
    const { template: _, cpu: __, memoryMb: ___, diskMb: ____, follows: _____, ttlSeconds: ______, ...agent } = options;
    this.#options = options;
    this.#client = Client.shared(options);
    this.#agent = new Agent({ ...agent, limits: { cellSeconds: CELL_SECONDS, ...options.limits } });
  }

  /** What was made of the files, in the API's own words; empty before the first question. */
  get tables(): api.AgentTable[] {
    return this.#tables;
  }
  /** The last run; undefined before the first question. */
  get run(): AgentRun | undefined {
    return this.#run;
  }
  /** Has the files in /workspace; undefined before the first question. */
  get sandbox(): Sandbox | undefined {
    return this.#sandbox;
  }

  /**
   * Asks a question and waits for the end. Later ones find the tables and variables of earlier ones. A run that ends
   * without an answer is no error: look at `run.reason` of the answer.
   *
   * @param question in words.
   * @throws NotFoundError the sandbox is gone.
   * @throws CapacityError the server has no room.
   */
  async ask(question: string, options: AgentWaitOptions = {}): Promise<Answer> {
    const { signal } = options;
    const sandbox = await this.#open({ signal });
    const where = this.#last === undefined ? { sandboxId: sandbox.id, data: [...this.#files.keys()] } : { follows: this.#last.id };
    const run = await this.#agent.start(question, { ...where, signal });
    await run.wait(options);
    this.#run = run;
    const figures: Uint8Array[] = [];
    let loaded = this.#last !== undefined;
    for (const event of await run.transcript({ signal })) {
      if (event.loaded !== undefined && !event.loaded.failed?.length) {
        this.#tables = event.loaded.tables;
        loaded = true;
      }
      for (const figure of event.outcome?.figures ?? []) figures.push(await run.figure(figure.file, { signal }));
    }
    if (loaded && run.info.context_id) this.#last = run;
    return { text: run.answer, figures, run };
  }

  /** Makes the sandbox and sends the files, or gives it its time anew. */
  async #open(options: CallOptions): Promise<Sandbox> {
    const { template = "code-interpreter", cpu, memoryMb, diskMb, ttlSeconds = 3600, follows } = this.#options;
    if (this.#sandbox !== undefined) {
      if (this.#made) await this.#sandbox.setTtl(ttlSeconds, options);
      return this.#sandbox;
    }
    if (follows !== undefined) {
      this.#last = this.#run = await this.#agent.get(follows, options);
      return (this.#sandbox = await this.#client.sandboxes.get(this.#last.sandboxId ?? "", options));
    }
    const sandbox = await Sandbox.create({ template, cpu, memoryMb, diskMb, ttlSeconds, ...options }, this.#client);
    try {
      for (const [name, file] of this.#files) {
        const to = `/workspace/${name}`;
        await (typeof file === "string" ? sandbox.filesystem.upload(file, to, options) : sandbox.filesystem.write(to, file, options));
      }
    } catch (error) {
      await sandbox.kill();
      throw error;
    }
    this.#made = true;
    return (this.#sandbox = sandbox);
  }

  /**
   * All questions so far as a Jupyter notebook, which does it again beside the files.
   *
   * @throws Error nothing was asked yet.
   */
  async notebook(options: CallOptions = {}): Promise<Uint8Array> {
    return this.#asked().notebook(options);
  }

  /**
   * All questions so far as one page of HTML that needs nothing beside it.
   *
   * @throws Error nothing was asked yet.
   */
  async report(options: CallOptions = {}): Promise<string> {
    return this.#asked().report(options);
  }

  #asked(): AgentRun {
    if (this.#run === undefined) throw new Error("the analyst was asked nothing yet");
    return this.#run;
  }

  /** Ends the sandbox that it made. Runs, notebook and report are still there. Closing twice is no error. */
  async close(options: CallOptions = {}): Promise<void> {
    if (!this.#made) return;
    this.#made = false;
    await this.#sandbox?.kill(options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
