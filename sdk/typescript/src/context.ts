/** Code contexts: an interpreter in a sandbox that keeps its state from cell to cell. */

import type * as api from "./api.js";
import type { Client } from "./client.js";
import { asyncDispose, LONGEST_ANSWER_SECONDS, MARGIN_SECONDS, seconds, segment, text, type Call, type CallOptions } from "./connection.js";
import { NetworkError, NotFoundError } from "./errors.js";
import { cellEvent, ExecutionAssembly, type CellEvent } from "./events.js";
import { Execution, type Result } from "./execution.js";

/** Something that may have to be waited for. */
export type Awaitable<T> = T | PromiseLike<T>;

/** How a cell runs. */
export interface StreamOptions extends CallOptions {
  /** The cell's deadline, in seconds of running; waiting behind other cells doesn't count. Default: 30. */
  timeoutSeconds?: number | undefined;
  /** An id of your own, at most once for one code. Default: a new UUID. */
  executionId?: string | undefined;
  /** Let the cell go on when this client is gone; else it is interrupted 10 s later. */
  detach?: boolean | undefined;
}

/** Called as a cell writes and shows; what they return is waited for, and what they throw ends the call. */
export interface CellCallbacks {
  /** Hears each piece of standard output. */
  onStdout?: ((text: string) => Awaitable<unknown>) | undefined;
  /** Hears each piece of standard error. */
  onStderr?: ((text: string) => Awaitable<unknown>) | undefined;
  /** Hears each object that is shown, as it is. */
  onResult?: ((result: Result) => Awaitable<unknown>) | undefined;
}

/** How a cell runs and what hears of it. */
export interface RunOptions extends StreamOptions, CellCallbacks {}

/**
 * The events of a running cell: iterate over it, or `wait` for the outcome.
 *
 * A broken connection is taken up again where it broke. Leaving a loop lets go of the cell: one that nobody is attached
 * to is interrupted after 10 s, unless it was started with `detach`.
 */
export class ExecutionStream implements AsyncIterableIterator<CellEvent>, AsyncDisposable {
  /** The id to attach with. */
  readonly executionId: string;
  readonly #events: AsyncGenerator<CellEvent, void, undefined>;
  readonly #assembly: ExecutionAssembly;

  /** @internal */
  constructor(events: AsyncGenerator<CellEvent, void, undefined>, executionId: string) {
    this.executionId = executionId;
    this.#events = events;
    this.#assembly = new ExecutionAssembly(executionId);
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** The next event. */
  async next(): Promise<IteratorResult<CellEvent, void>> {
    const step = await this.#events.next();
    if (!step.done) this.#assembly.add(step.value);
    return step;
  }

  /** Ends a loop over it: see `close`. */
  async return(): Promise<IteratorResult<CellEvent, void>> {
    await this.close();
    return { done: true, value: undefined };
  }

  /**
   * Reads to the end and returns the outcome, put together from all events that this stream has seen.
   *
   * @throws NetworkError the server could not be reached again.
   */
  async wait(): Promise<Execution> {
    while (!(await this.next()).done);
    if (this.#assembly.execution === undefined) throw new NetworkError("the stream was closed before its last event");
    return this.#assembly.execution;
  }

  /** Lets go of the connection. The cell is not stopped by this at once. */
  async close(): Promise<void> {
    await this.#events.return();
  }

  async [asyncDispose](): Promise<void> {
    await this.close();
  }
}

/**
 * An interpreter that keeps its state: variables, imports, the working folder. One cell runs at a time, others wait in
 * order. With `await using` it closes itself.
 */
export class CodeContext implements AsyncDisposable {
  /** Its id, good for `Sandbox.context`. */
  readonly id: string;
  /** "python". */
  readonly language: string;
  /** Of a copy that `fork` made: what it lacks, or shares with the original. */
  readonly warnings: readonly string[];
  readonly #client: Client;
  readonly #sandbox: string;
  readonly #path: string;

  /** A handle on a context; nothing is asked or made. */
  constructor(client: Client, sandboxId: string, id: string, language = "python", warnings: readonly string[] = []) {
    this.#client = client;
    this.#sandbox = sandboxId;
    this.#path = `/sandboxes/${segment("sandbox id", sandboxId)}/repl/sessions/${segment("context id", id)}`;
    this.id = id;
    this.language = language;
    this.warnings = warnings;
  }

  /**
   * Runs a cell and returns its outcome.
   *
   * An exception in the cell, its deadline and a dead interpreter don't throw here: look at `Execution.error` and
   * `Execution.end`. When the connection breaks, or the server restarts, the call goes on waiting; the cell runs once
   * whatever happens.
   *
   * @param code Python, as in a notebook cell: magics, `!command` and top-level `await` work.
   * @throws NotFoundError no such context or sandbox.
   * @throws ConflictError the execution id was used for other code.
   * @throws RateLimitError too many cells wait in this context.
   * @throws NetworkError the server could not be reached, or not again within `reconnectSeconds`.
   */
  async runCode(code: string, options: RunOptions = {}): Promise<Execution> {
    const { onStdout, onStderr, onResult, signal } = options;
    const executionId = options.executionId ?? crypto.randomUUID();
    let broken: NetworkError | undefined;
    if (onStdout === undefined && onStderr === undefined && onResult === undefined) {
      try {
        return Execution.fromWire((await this.#client.connection.send(this.#run("/run", code, executionId, options))).object());
      } catch (error) {
        if (!(error instanceof NetworkError)) throw error;
        broken = error;
      }
    }
    const stream = this.#follow(this.#run("/run/stream", code, executionId, options), executionId, 0, broken, signal);
    for await (const event of stream) {
      if (event.type === "stdout") await onStdout?.(event.text);
      else if (event.type === "stderr") await onStderr?.(event.text);
      else if (event.type === "result") await onResult?.(event.result);
    }
    return await stream.wait();
  }

  /**
   * Runs a cell and gives its events as they come; the cell starts with the first step of the iteration, which throws
   * what `runCode` does.
   */
  stream(code: string, options: StreamOptions = {}): ExecutionStream {
    const executionId = options.executionId ?? crypto.randomUUID();
    return this.#follow(this.#run("/run/stream", code, executionId, options), executionId, 0, undefined, options.signal);
  }

  /**
   * The events of a cell that was started before, finished or not.
   *
   * @param options `after` is the number of the last event that you have; 0, the default, for all.
   * @throws NotFoundError in the iteration: no such execution, or it is too long ago.
   */
  attach(executionId: string, options: { after?: number | undefined } & CallOptions = {}): ExecutionStream {
    const after = options.after ?? 0;
    return this.#follow(this.#attach(executionId, after), executionId, after, undefined, options.signal);
  }

  /** Interrupts the running cell, which then ends with "interrupted". Does nothing when none runs. */
  async interrupt(options: CallOptions = {}): Promise<void> {
    await this.#client.connection.send({ method: "POST", path: `${this.#path}/interrupt`, ...options });
  }

  /** Starts a new interpreter under the same id; the variables are gone. */
  async restart(options: CallOptions = {}): Promise<void> {
    await this.#client.connection.send({ method: "POST", path: `${this.#path}/restart`, quietSeconds: 60, ...options });
  }

  /**
   * Copies the interpreter with all its variables; memory is shared until one of them writes. It waits up to 10 s for the
   * cells of this context to end. The copies share the sandbox's files and limits with it. For copies with files of their
   * own, fork the sandbox. With a `count`, 1 to 32, a list of so many.
   *
   * @throws ConflictError the context is busy, or in a state in which a copy would hang; or memory is short.
   * @throws RateLimitError the sandbox would have more contexts than it may.
   */
  fork(options?: CallOptions): Promise<CodeContext>;
  fork(count: number, options?: CallOptions): Promise<CodeContext[]>;
  async fork(first?: number | CallOptions, second?: CallOptions): Promise<CodeContext | CodeContext[]> {
    const count = typeof first === "number" ? first : undefined;
    const { signal } = (typeof first === "number" ? second : first) ?? {};
    const call: Call = { method: "POST", path: `${this.#path}/fork`, json: { count: count ?? 1 }, quietSeconds: 60, signal };
    const { children, warnings } = (await this.#client.connection.send(call)).object<api.ForkContextResponse>();
    const made = children.map((child) => new CodeContext(this.#client, this.#sandbox, child.id, child.language, warnings));
    return count === undefined ? made[0]! : made;
  }

  /** Its state, how many cells it ran, how many wait. */
  async info(options: CallOptions = {}): Promise<api.Context> {
    return (await this.#client.connection.send({ method: "GET", path: this.#path, repeatable: true, ...options })).object<api.Context>();
  }

  /** Ends the interpreter. Does nothing when it has ended already, or with its sandbox. */
  async close(options: CallOptions = {}): Promise<void> {
    try {
      await this.#client.connection.send({ method: "DELETE", path: this.#path, repeatable: true, ...options });
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
    }
  }

  async [asyncDispose](): Promise<void> {
    await this.close();
  }

  #run(verb: "/run" | "/run/stream", code: string, executionId: string, options: StreamOptions): Call {
    const deadline = seconds("timeoutSeconds", options.timeoutSeconds ?? 30);
    return {
      method: "POST",
      path: this.#path + verb,
      json: {
        code: text("code", code),
        timeout_ms: Math.max(1, Math.round(deadline * 1000)),
        execution_id: text("executionId", executionId),
        detach: options.detach || undefined,
      },
      ...(verb === "/run" ? { quietSeconds: Math.min(deadline + MARGIN_SECONDS, LONGEST_ANSWER_SECONDS) } : {}),
      runsCode: true,
      signal: options.signal,
    };
  }

  #attach(executionId: string, after: number): Call {
    return { method: "GET", path: `${this.#path}/executions/${segment("executionId", executionId)}`, query: [["after", String(after)]], runsCode: true };
  }

  #follow(first: Call, executionId: string, after: number, broken: NetworkError | undefined, signal: AbortSignal | undefined): ExecutionStream {
    const again = (seq: number) => this.#attach(executionId, seq);
    return new ExecutionStream(this.#client.connection.follow({ first, again, read: cellEvent, after, broken, signal }), executionId);
  }
}
