/** Terminals in a sandbox: programs that want one, such as a shell, an editor or a password prompt. */

import type * as api from "./api.js";
import type { Client } from "./client.js";
import { Commands, Process, type Command, type Hearer, type WaitOptions } from "./commands.js";
import { seconds, type CallOptions, type Content } from "./connection.js";
import type { Awaitable } from "./context.js";
import { NotFoundError } from "./errors.js";
import type { ProcessEvent } from "./events.js";
import type { ExecResult } from "./execution.js";

/** Called with each piece of a terminal's output; what it returns is waited for. */
export interface DataCallback {
  /** Hears each piece of output, from the start. */
  onData?: ((data: Uint8Array) => Awaitable<unknown>) | undefined;
}

/** What a terminal is to be. `onData` is called whether somebody waits or not, until `signal` aborts; what it throws, `wait` throws. */
export interface TerminalOptions extends CallOptions, DataCallback {
  /** A string for the shell (bash), or an array of arguments. Default: a login shell. */
  cmd?: Command | undefined;
  /** Its height, at most 1000. Default: 24. */
  rows?: number | undefined;
  /** Its width, at most 1000. Default: 80. */
  cols?: number | undefined;
  /** Its working folder. Default: /workspace. */
  cwd?: string | undefined;
  /** Variables beside those of the sandbox. TERM is xterm-256color unless you say otherwise. */
  envs?: Record<string, string> | undefined;
  /** A name or number. Default: root. */
  user?: string | number | undefined;
  /** Its deadline in seconds, which ends all of its session. Default: none. */
  timeoutSeconds?: number | undefined;
  /** A name for it in lists, unique while it runs. */
  tag?: string | undefined;
}

/**
 * A process with a terminal. It lives in the sandbox, whoever is connected, and its input is always open.
 *
 * All that it writes is one stream of bytes, with the escape sequences of the terminal in it. Iterating over it gives
 * events as `stream` does, which have numbers to come back to; `output` gives the bytes.
 */
export class Terminal extends Process {
  /** What it writes, as it comes, to its end. `after` is the number of an event: see `stream`. */
  async *output(options: { after?: number | undefined } & CallOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const event of this.stream(options)) {
      const data = dataOf(event);
      if (data !== undefined) yield data;
    }
  }

  /** As `Process.wait`; `onData` hears all of its output, from the start. */
  override async wait(options: WaitOptions & DataCallback = {}): Promise<ExecResult> {
    return super.wait({ ...options, hear: hearer(options.onData) });
  }

  /**
   * Sets the size; programs in the foreground are told by SIGWINCH.
   *
   * @throws ConflictError it has ended.
   */
  async resize(rows: number, cols: number, options: CallOptions = {}): Promise<void> {
    await this.send("POST", "/resize", { json: { rows, cols }, repeatable: true, ...options });
  }
}

function dataOf(event: ProcessEvent): Uint8Array | undefined {
  return event.type === "stdout" ? event.raw ?? new TextEncoder().encode(event.text) : undefined;
}

function hearer(onData: DataCallback["onData"]): Hearer | undefined {
  return onData && ((event) => {
    const data = dataOf(event);
    return data && onData(data);
  });
}

/** Terminals: `sandbox.pty`. */
export class Pty {
  readonly #client: Client;
  readonly #commands: Commands;
  readonly #path: string;

  /** @internal */
  constructor(client: Client, path: string, commands: Commands) {
    this.#client = client;
    this.#path = path;
    this.#commands = commands;
  }

  /**
   * Starts a shell, or `cmd`, with a terminal of its own, and returns at once.
   *
   * @throws NotFoundError no such sandbox.
   * @throws ServerError the agent in the sandbox is of an earlier version and has no terminals (status 501).
   */
  async create(options: TerminalOptions = {}): Promise<Terminal> {
    const { cmd = ["/bin/bash", "-l"], rows = 24, cols = 80, cwd, envs, user, timeoutSeconds, tag, signal } = options;
    const timeout_ms = timeoutSeconds === undefined ? undefined : Math.max(1, Math.round(seconds("timeoutSeconds", timeoutSeconds) * 1000));
    const json = { cmd, cwd, envs, user: user === undefined ? undefined : String(user), tag, timeout_ms, pty: { rows, cols } };
    const { pid } = (await this.#client.connection.send({ method: "POST", path: `${this.#path}/processes`, json, signal })).object<api.Process>();
    return this.#heard(pid, options);
  }

  /**
   * The terminal of the process with this number, started by whomever. `onData` hears it from the start, as in `create`.
   *
   * @throws NotFoundError there is no such process, or it has no terminal.
   */
  async connect(pid: number, options: DataCallback & CallOptions = {}): Promise<Terminal> {
    const { signal } = options;
    const { pty } = await new Terminal(this.#client, this.#path, pid).info({ signal });
    if (pty === undefined) throw new NotFoundError(`process ${pid} has no terminal: use commands.connect`);
    return this.#heard(pid, options);
  }

  #heard(pid: number, { onData, signal }: DataCallback & CallOptions): Terminal {
    const terminal = new Terminal(this.#client, this.#path, pid);
    const hear = hearer(onData);
    if (hear !== undefined) terminal.listen(hear, signal);
    return terminal;
  }

  /** The processes with a terminal, ended ones for a while too. */
  async list(options: CallOptions = {}): Promise<api.Process[]> {
    return (await this.#commands.list(options)).filter((process) => process.pty !== undefined);
  }

  /**
   * Types into the terminal of a process.
   *
   * @throws ConflictError it has ended.
   */
  async sendStdin(pid: number, data: Content, options: CallOptions = {}): Promise<void> {
    await new Terminal(this.#client, this.#path, pid).sendStdin(data, options);
  }

  /** Sets the size of the terminal of a process. */
  async resize(pid: number, rows: number, cols: number, options: CallOptions = {}): Promise<void> {
    await new Terminal(this.#client, this.#path, pid).resize(rows, cols, options);
  }

  /** Kills a process and all of its session; false when there is none with this number. */
  async kill(pid: number, options: CallOptions = {}): Promise<boolean> {
    return this.#commands.kill(pid, options);
  }
}
