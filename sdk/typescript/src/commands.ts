/** Commands in a sandbox: run one and wait, or start one and keep hold of it. */

import type * as api from "./api.js";
import type { Client } from "./client.js";
import { LONGEST_ANSWER_SECONDS, MARGIN_SECONDS, seconds, segment, sleep, type Call, type CallOptions, type Content } from "./connection.js";
import type { Awaitable } from "./context.js";
import { CommandError, ConflictError, isObject, NetworkError, NotFoundError, SandboxTimeout } from "./errors.js";
import { CommandAssembly, processEvent, type ProcessEvent } from "./events.js";
import { ExecResult } from "./execution.js";

/** A line for the shell (bash), or a program and its arguments. */
export type Command = string | readonly string[];

/** How a command runs. */
export interface ExecOptions extends CallOptions {
  /** Its deadline in seconds, which ends all of its session. Default: 60. */
  timeoutSeconds?: number | undefined;
  /** Its working folder. Default: /workspace. */
  cwd?: string | undefined;
  /** Variables beside those of the sandbox. */
  envs?: Record<string, string> | undefined;
  /** A name or number. Default: root. */
  user?: string | number | undefined;
  /** All of its standard input, of any size. Default: none. */
  stdin?: Content | undefined;
  /** Throw a CommandError for a status other than 0. */
  check?: boolean | undefined;
}

/** Called as a command writes; what they return is waited for, and what they throw ends the call. */
export interface OutputCallbacks {
  /** Hears each piece of standard output. */
  onStdout?: ((text: string) => Awaitable<unknown>) | undefined;
  /** Hears each piece of standard error. */
  onStderr?: ((text: string) => Awaitable<unknown>) | undefined;
}

/** How `commands.run` runs a command. */
export interface CommandOptions extends ExecOptions, OutputCallbacks {
  /** Wait for its end; see `BackgroundOptions`. */
  background?: false | undefined;
}

/**
 * How `commands.run` starts a command in the background: with no deadline, unless there is one here. The callbacks are
 * called as it writes, whether somebody waits or not, until `signal` aborts; what they throw, `Process.wait` throws.
 */
export interface BackgroundOptions extends Omit<ExecOptions, "stdin">, OutputCallbacks {
  /** Start it, and don't wait. */
  background: true;
  /** All of its standard input, sent before this returns; or true, which keeps it open for `sendStdin`. Default: none. */
  stdin?: Content | boolean | undefined;
  /** A name for it in lists, unique while it runs. */
  tag?: string | undefined;
}

/** How `Process.wait` waits. */
export interface WaitOptions extends CallOptions, OutputCallbacks {
  /** How long, in seconds; the process goes on after that. Default: until it ends. */
  timeoutSeconds?: number | undefined;
  /** Throw a CommandError for a status other than 0. Default: as it was started. */
  check?: boolean | undefined;
  /** @internal */
  hear?: Hearer | undefined;
}

/**
 * Hears each event of a process.
 * @internal
 */
export type Hearer = (event: ProcessEvent) => Awaitable<unknown>;

const INLINE_INPUT = 1 << 20; // characters of input that go with the request; more is streamed
const FEED_SECONDS = 1; // for input that is still on its way when the process has ended
const INPUT_SECONDS = 24 * 3600; // which a program may take its time to read

/**
 * A command that was started in the background. It lives in the sandbox, whoever is connected. Iterating over it gives
 * its output as `stream` does.
 */
export class Process implements AsyncIterable<ProcessEvent> {
  /** Its number in the sandbox, good for `Commands.connect`. */
  readonly pid: number;
  readonly #client: Client;
  readonly #path: string;
  readonly #check: boolean | undefined;
  readonly #heard = new CommandAssembly();
  #listening: Promise<void> | undefined;

  /** @internal */
  constructor(client: Client, sandboxPath: string, pid: number, check?: boolean | undefined) {
    this.pid = pid;
    this.#client = client;
    this.#path = `${sandboxPath}/processes/${pid}`;
    this.#check = check;
  }

  /**
   * Waits for its end and returns all of its output; the callbacks hear it from the start. Those that it was started with
   * are called anyhow, and have been when this returns; what they throw, this throws.
   *
   * @throws SandboxTimeout it did not end in time, or its own deadline ended it; has the output so far.
   * @throws CommandError with `check`.
   * @throws NotFoundError no such process or sandbox.
   */
  async wait(options: WaitOptions = {}): Promise<ExecResult> {
    const { check = this.#check, hear = hearer(options) } = options;
    const limit = options.timeoutSeconds === undefined ? undefined : seconds("timeoutSeconds", options.timeoutSeconds);
    const follows = this.#listening === undefined || hear !== undefined;
    const assembly = follows ? new CommandAssembly() : this.#heard;
    const late = new AbortController();
    const stop = () => late.abort(options.signal?.reason);
    options.signal?.addEventListener("abort", stop, { once: true });
    if (options.signal?.aborted) stop();
    let over = false;
    const timer = limit === undefined ? undefined : setTimeout(() => late.abort((over = true)), Math.min(limit * 1000, 2 ** 31 - 1));
    try {
      if (follows) await this.#follow(assembly, hear, late.signal);
      if (this.#listening !== undefined) await Promise.race([this.#listening, aborted(late.signal)]);
    } catch (error) {
      if (!over || options.signal?.aborted) throw error;
      throw new SandboxTimeout(`process ${this.pid} did not end within ${limit} s; it goes on`, assembly.output());
    } finally {
      clearTimeout(timer);
      options.signal?.removeEventListener("abort", stop);
    }
    const result = assembly.ended!; // the stream has ended, and its last event is the exit
    if (result.reason === "timeout") {
      const { stdout, stderr } = result;
      throw new SandboxTimeout(`process ${this.pid} was ended at its deadline, with all that it had started`, { code: "timeout", stdout, stderr });
    }
    return checked(`process ${this.pid}`, result, check);
  }

  async #follow(assembly: CommandAssembly, hear: Hearer | undefined, signal: AbortSignal | undefined): Promise<void> {
    for await (const event of this.stream({ signal })) {
      assembly.add(event);
      await hear?.(event);
    }
  }

  /**
   * Tells somebody of output as it comes, beside whoever waits.
   * @internal
   */
  listen(hear: Hearer, signal: AbortSignal | undefined): void {
    this.#listening = this.#follow(this.#heard, hear, signal);
    this.#listening.catch(() => undefined); // `wait` throws it
  }

  /**
   * Its output as events, the last one of type "exit". A broken connection is taken up again where it broke.
   *
   * @param options `after` is the number of the last event that you have; 0, the default, for all that is kept.
   */
  stream(options: { after?: number | undefined } & CallOptions = {}): AsyncGenerator<ProcessEvent, void, undefined> {
    const after = options.after ?? 0;
    const from = (seq: number): Call => ({ method: "GET", path: `${this.#path}/stream`, query: [["after", String(seq)]] });
    return this.#client.connection.follow({ first: from(after), again: from, read: processEvent, after, signal: options.signal });
  }

  [Symbol.asyncIterator](): AsyncGenerator<ProcessEvent, void, undefined> {
    return this.stream();
  }

  /**
   * Writes to its standard input, as fast as it reads. It must have been started with `stdin: true`.
   *
   * @param options `close` says afterwards that there is no more.
   * @throws ConflictError its standard input is closed, or it has ended without reading all.
   * @throws NetworkError the connection broke; part of the data may have arrived.
   */
  async sendStdin(data: Content, options: { close?: boolean | undefined } & CallOptions = {}): Promise<void> {
    const { close = false, signal } = options;
    if (data !== "") await this.#client.connection.send({ method: "POST", path: `${this.#path}/stdin`, content: data, quietSeconds: INPUT_SECONDS, signal });
    if (close) await this.closeStdin({ signal });
  }

  /** Says that there is no more input. */
  async closeStdin(options: CallOptions = {}): Promise<void> {
    await this.#client.connection.send({ method: "DELETE", path: `${this.#path}/stdin`, repeatable: true, ...options });
  }

  /**
   * Sends a signal to it and the rest of its process group.
   *
   * @param signal "SIGTERM", "TERM" or 15.
   * @throws NotFoundError it is not there.
   * @throws ConflictError it has ended.
   */
  async signal(signal: string | number, options: CallOptions = {}): Promise<void> {
    await this.#client.connection.send({ method: "POST", path: `${this.#path}/signal`, json: { signal: String(signal) }, ...options });
  }

  /**
   * Kills it and all of its session. Does nothing when it has ended. What has made itself a session of its own, with
   * `setsid`, stays.
   */
  async kill(options: CallOptions = {}): Promise<void> {
    try {
      await this.#client.connection.send({ method: "DELETE", path: this.#path, repeatable: true, ...options });
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
    }
  }

  /** Its command, whether it runs, how it ended. */
  async info(options: CallOptions = {}): Promise<api.Process> {
    return (await this.#client.connection.send({ method: "GET", path: this.#path, repeatable: true, ...options })).object<api.Process>();
  }

  /** @internal */
  async send(method: Call["method"], verb: string, rest: Omit<Call, "method" | "path">): Promise<void> {
    await this.#client.connection.send({ method, path: this.#path + verb, ...rest });
  }

  /**
   * Gives it all of its input. A program need not read it; one that can't have it all must not wait for it.
   * @internal
   */
  async feed(data: Content, signal: AbortSignal | undefined): Promise<void> {
    try {
      await this.sendStdin(data, { close: true, signal });
    } catch (error) {
      if (error instanceof ConflictError) return;
      await this.killQuietly();
      throw error;
    }
  }

  /**
   * Kills it on the way out of another error, which is the one to be seen.
   * @internal
   */
  async killQuietly(): Promise<void> {
    await this.kill().catch(() => undefined);
  }
}

function hearer({ onStdout, onStderr }: OutputCallbacks): Hearer | undefined {
  if (onStdout === undefined && onStderr === undefined) return undefined;
  return (event) => (event.type === "stdout" ? onStdout?.(event.text) : event.type === "stderr" ? onStderr?.(event.text) : undefined);
}

/** Commands: `sandbox.commands`. */
export class Commands {
  readonly #client: Client;
  readonly #path: string;

  /** @internal */
  constructor(client: Client, sandboxId: string) {
    this.#client = client;
    this.#path = `/sandboxes/${segment("sandbox id", sandboxId)}`;
  }

  /**
   * Runs a command and waits for it; with `background` it is started, and this returns a `Process` at once.
   *
   * @throws SandboxTimeout it did not end in time; has the output so far.
   * @throws CommandError with `check`.
   * @throws NotFoundError no such sandbox.
   * @throws NetworkError the connection broke and could not be made again; the command may have run.
   */
  run(cmd: Command, options: BackgroundOptions): Promise<Process>;
  run(cmd: Command, options?: CommandOptions): Promise<ExecResult>;
  async run(cmd: Command, options: CommandOptions | BackgroundOptions = {}): Promise<ExecResult | Process> {
    if (options.background) {
      const { stdin } = options;
      const process = await this.#start(cmd, options, stdin !== undefined && stdin !== false);
      const hear = hearer(options);
      if (hear !== undefined) process.listen(hear, options.signal);
      if (stdin !== undefined && typeof stdin !== "boolean") await process.feed(stdin, options.signal);
      return process;
    }
    return options.onStdout === undefined && options.onStderr === undefined ? this.exec(cmd, options) : this.#watched(cmd, options);
  }

  /** The processes that were started through the API, ended ones for a while too. */
  async list(options: CallOptions = {}): Promise<api.Process[]> {
    return (await this.#client.connection.send({ method: "GET", path: `${this.#path}/processes`, repeatable: true, ...options })).items("processes");
  }

  /**
   * The process with this number, started by whomever through the API.
   *
   * @throws NotFoundError there is none.
   */
  async connect(pid: number, options: CallOptions = {}): Promise<Process> {
    const process = new Process(this.#client, this.#path, pid);
    await process.info(options);
    return process;
  }

  /** Kills a process and all of its session; false when there is none with this number. */
  async kill(pid: number, options: CallOptions = {}): Promise<boolean> {
    try {
      await this.#client.connection.send({ method: "DELETE", path: `${this.#path}/processes/${pid}`, repeatable: true, ...options });
    } catch (error) {
      if (error instanceof NotFoundError) return false;
      throw error;
    }
    return true;
  }

  /** @internal */
  async exec(cmd: Command, options: ExecOptions): Promise<ExecResult> {
    const { stdin } = options;
    if (stdin !== undefined && !(typeof stdin === "string" && stdin.length <= INLINE_INPUT)) return this.#watched(cmd, options);
    const deadline = seconds("timeoutSeconds", options.timeoutSeconds ?? 60);
    const until = performance.now() + (deadline + MARGIN_SECONDS) * 1000;
    const json = { ...asked(cmd, options), timeout_seconds: deadline, stdin, execution_id: crypto.randomUUID() };
    for (let attach = false; ; attach = true) {
      const left = (until - performance.now()) / 1000;
      const call: Call = {
        method: "POST",
        path: `${this.#path}/exec`,
        json: attach ? { ...json, attach } : json,
        quietSeconds: Math.max(MARGIN_SECONDS, Math.min(left, LONGEST_ANSWER_SECONDS)),
        repeatable: attach,
        runsCode: true,
        signal: options.signal,
      };
      try {
        const body = (await this.#client.connection.send(call)).object<api.ExecResult>();
        const result = ExecResult.fromWire(body);
        if (body.timed_out) throw new SandboxTimeout(`the command did not end within ${deadline} s`, { code: "timeout", stdout: result.stdout, stderr: result.stderr, response: body });
        return checked("the command", result, options.check);
      } catch (error) {
        // It goes on without us: the same id follows it.
        const again = error instanceof NetworkError && (error.timedOut ? performance.now() < until : error.sent && !attach);
        if (!again) throw error;
      }
    }
  }

  /** @internal */
  async execStream(cmd: Command, options: ExecOptions & OutputCallbacks): Promise<number> {
    const { stdin } = options;
    if (stdin !== undefined && typeof stdin !== "string") return (await this.#watched(cmd, options)).exitCode;
    const deadline = seconds("timeoutSeconds", options.timeoutSeconds ?? 60);
    const json = { ...asked(cmd, options), timeout_seconds: deadline, stdin };
    const call: Call = { method: "POST", path: `${this.#path}/exec/stream`, json, runsCode: true, signal: options.signal };
    let [stdout, stderr] = ["", ""];
    for await (const { name, data } of this.#client.connection.events(call)) {
      const chunk = typeof data["chunk"] === "string" ? data["chunk"] : "";
      if (name === "stdout") {
        stdout += options.check ? chunk : "";
        await options.onStdout?.(chunk);
      } else if (name === "stderr") {
        stderr += options.check ? chunk : "";
        await options.onStderr?.(chunk);
      } else if (name === "exit") {
        return checked("the command", new ExecResult({ ...ExecResult.fromWire(data), stdout, stderr }), options.check).exitCode;
      }
    }
    throw new NetworkError("the stream ended before the command did");
  }

  /** Runs a command as a process, with its input streamed while its output is followed. */
  async #watched(cmd: Command, options: ExecOptions & OutputCallbacks): Promise<ExecResult> {
    const { stdin, signal, onStdout, onStderr } = options;
    const process = await this.#start(cmd, { ...options, timeoutSeconds: options.timeoutSeconds ?? 60 }, stdin !== undefined);
    try {
      if (stdin === undefined) return await process.wait({ signal, onStdout, onStderr });
      return await this.#fed(process, stdin, { signal, onStdout, onStderr });
    } catch (error) {
      // Nobody has a handle on it any more.
      if (!(error instanceof CommandError) && !(error instanceof SandboxTimeout)) await process.killQuietly();
      throw error;
    }
  }

  /** Waits for a process while it gets its input. What is left of the input when it has ended is for nobody. */
  async #fed(process: Process, stdin: Content, options: WaitOptions): Promise<ExecResult> {
    const { signal } = options;
    const done = new AbortController();
    const stop = () => done.abort(signal?.reason);
    signal?.addEventListener("abort", stop, { once: true });
    let failed: { error: unknown } | undefined;
    const feeding = process.feed(stdin, done.signal).catch((error: unknown) => {
      if (!done.signal.aborted) failed = { error };
    });
    try {
      const result = await process.wait(options);
      await Promise.race([feeding, sleep(FEED_SECONDS, done.signal)]);
      if (failed !== undefined) throw (failed as { error: unknown }).error;
      return result;
    } catch (error) {
      throw failed === undefined ? error : (failed as { error: unknown }).error;
    } finally {
      signal?.removeEventListener("abort", stop);
      done.abort();
    }
  }

  async #start(cmd: Command, options: CommandOptions | BackgroundOptions, stdin: boolean): Promise<Process> {
    const { timeoutSeconds, check, signal } = options;
    const json: api.StartProcessRequest = { ...asked(cmd, options) };
    if (timeoutSeconds !== undefined) json.timeout_ms = Math.max(1, Math.round(seconds("timeoutSeconds", timeoutSeconds) * 1000));
    if (stdin) json.stdin = true;
    if ("tag" in options && options.tag !== undefined) json.tag = options.tag;
    const body = (await this.#client.connection.send({ method: "POST", path: `${this.#path}/processes`, json, signal })).object<api.Process>();
    return new Process(this.#client, this.#path, body.pid, check);
  }
}

/** Rejects when a signal says so. */
function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    if (signal.aborted) reject(signal.reason);
    else signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  });
}

/** What a command, started or run, asks for. */
function asked(cmd: Command, { cwd, envs, user }: Pick<ExecOptions, "cwd" | "envs" | "user">) {
  if (typeof cmd !== "string" && !Array.isArray(cmd)) throw new TypeError(`cmd must be a string (for the shell) or an array of strings, not ${typeof cmd}`);
  if (envs !== undefined && !isObject(envs)) throw new TypeError("envs must be an object of strings");
  return {
    cmd: cmd as string | string[],
    ...(cwd === undefined ? {} : { cwd }),
    ...(envs === undefined ? {} : { envs }),
    ...(user === undefined ? {} : { user: String(user) }),
  };
}

function checked(what: string, result: ExecResult, check: boolean | undefined): ExecResult {
  if (!check || result.exitCode === 0) return result;
  const tail = result.stderr.trim().slice(-400);
  const words = result.reason === "oom" ? `${what} was ended because the sandbox ran out of memory` : `${what} ended with code ${result.exitCode}${tail === "" ? "" : `: ${tail}`}`;
  throw new CommandError(words, { exitCode: result.exitCode, stdout: result.stdout, stderr: result.stderr });
}
