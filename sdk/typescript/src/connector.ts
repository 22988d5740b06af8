/** The connection over which functions of this program are called from a sandbox. */

import type * as api from "./api.js";
import { sleep, type Connection } from "./connection.js";
import { isObject, NetworkError, PandaStackError } from "./errors.js";
import { dump, type Tool } from "./functions.js";
import { openLine, type Line } from "./line.js";

const [FIRST_WAIT, LONGEST_WAIT] = [0.1, 5]; // seconds before it connects again
const LARGEST_CALL = 32 << 20;
const LARGEST_RESULT = 64 << 20; // bytes; the server takes no longer message
const QUIET_MS = 60_000; // the server pings every 20 s
const NOT_WANTED = 1008; // what the server ends it with for good
const GONE = [401, 403, 404, 409, 410, 501];

/**
 * Keeps a program connected for a sandbox or an agent's run. It connects again when the connection breaks; calls that were
 * in flight then have failed on the server's side, and are not carried out again. It does not keep the program running.
 */
export class Connector {
  /** When calls are taken. Rejects when they never will be. */
  readonly ready: Promise<void>;
  readonly #connection: Connection;
  readonly #path: string;
  readonly #functions: ReadonlyMap<string, Tool>;
  readonly #closed = new AbortController();
  readonly #calls = new Map<string, AbortController>();
  #over = false;

  /** @param path the route, below /v1. */
  constructor(connection: Connection, path: string, functions: ReadonlyMap<string, Tool>) {
    this.#connection = connection;
    this.#path = path;
    this.#functions = functions;
    this.ready = new Promise((resolve, reject) => {
      const over = (why: unknown) => {
        this.#over = true;
        reject(why);
      };
      void this.#stay(resolve).then(over, over);
    });
    this.ready.catch(() => undefined); // who waits for it hears of it
  }

  /** It is connected, or will be again; not when it was closed, or is not wanted any more. */
  get connects(): boolean {
    return !this.#over && !this.#closed.signal.aborted;
  }

  /** Leaves. Calls in flight are interrupted. */
  close(): void {
    this.#closed.abort(new NetworkError("the connection for tools was closed"));
  }

  /** Stays connected until it is closed, which throws, or not wanted; returns why. */
  async #stay(ready: () => void): Promise<unknown> {
    const { signal } = this.#closed;
    let [was, wait] = [false, FIRST_WAIT]; // connected
    for (;;) {
      try {
        const line = await openLine(this.#connection, this.#path, signal);
        const { code, why } = await this.#serve(line, () => {
          [was, wait] = [true, FIRST_WAIT];
          line.unref();
          ready();
        });
        if (code === NOT_WANTED) return new NetworkError(`the server does not take this program's functions any more: ${why}`);
        if (!was) return new NetworkError(`the connection for tools broke before calls were taken: ${why}`);
      } catch (error) {
        if (!was || (error instanceof PandaStackError && GONE.includes(error.statusCode ?? 0))) return error;
      }
      await sleep(wait, signal, false);
      wait = Math.min(2 * wait, LONGEST_WAIT);
    }
  }

  /** Answers calls until the connection ends; the code and the words that the server ends it with. */
  #serve(line: Line, ready: () => void): Promise<{ code?: number | undefined; why: string }> {
    return new Promise((resolve) => {
      const over = (code: number | undefined, why: string) => {
        this.#closed.signal.removeEventListener("abort", leave);
        for (const call of this.#calls.values()) call.abort(new NetworkError(`nobody waits for it any more: ${why}`));
        line.close();
        resolve({ code, why });
      };
      const leave = () => over(undefined, "the connection was closed");
      this.#closed.signal.addEventListener("abort", leave, { once: true });
      const message = (_: number, data: Uint8Array) => {
        const said = JSON.parse(new TextDecoder().decode(data)) as api.ToolMessage;
        if (said.type === "connected") ready();
        else if (said.type === "tool_call") void this.#answer(line, said);
        else if (said.type === "tool_cancel") this.#calls.get(said.call_id)?.abort(new NetworkError("nobody waits for it any more: it was cancelled"));
      };
      line.listen({ message, over }, { largest: LARGEST_CALL, quietMs: QUIET_MS });
      if (this.#closed.signal.aborted) leave();
    });
  }

  async #answer(line: Line, call: api.ToolMessage): Promise<void> {
    const cancel = new AbortController();
    this.#calls.set(call.call_id, cancel);
    const told = { type: "tool_result", call_id: call.call_id };
    let text: string;
    try {
      text = `${JSON.stringify(told).slice(0, -1)},"result":${await this.#carriedOut(call, cancel.signal)}}`;
    } catch (error) {
      text = JSON.stringify({ ...told, error: failure(error) });
    }
    this.#calls.delete(call.call_id);
    if (!cancel.signal.aborted) await line.send(1, new TextEncoder().encode(text)).catch(() => undefined); // it broke; the server has told so already
  }

  /** The result as JSON. */
  async #carriedOut(call: api.ToolMessage, signal: AbortSignal): Promise<string> {
    const { call_id: id, sandbox_id: sandboxId = "", context_id: contextId, execution_id: executionId, tool = "" } = call;
    const found = this.#functions.get(tool);
    if (found === undefined) throw new ToolFailure("not_found", `this program has no function ${tool}`);
    const value = await found.execute(call.arguments ?? {}, { id, sandboxId, contextId, executionId, signal });
    let text: string;
    try {
      text = dump(value);
    } catch (error) {
      throw new ToolFailure("bad_result", `what it gave cannot be JSON: ${error instanceof Error ? error.message : failure(error).message}`);
    }
    if (text.length > LARGEST_RESULT || new TextEncoder().encode(text).length > LARGEST_RESULT) throw new ToolFailure("too_large", "its result has more than 64 MiB of JSON", "give less, or in parts");
    return text;
  }
}

class ToolFailure extends Error {
  override name = "";

  constructor(
    readonly kind: string,
    message: string,
    readonly hint?: string,
  ) {
    super(message);
  }
}

/** What was thrown, as Python is to see it: anything, whose own code may throw in turn. */
function failure(error: unknown): api.ToolFailure {
  try {
    const { kind, hint, message } = isObject(error) ? error : {};
    const words = error instanceof Error ? [error.name, message].filter(Boolean).join(": ") : typeof message === "string" ? message : String(error);
    return { kind: typeof kind === "string" && kind !== "" ? kind : "failed", message: words, ...(typeof hint === "string" && { hint }) };
  } catch {
    return { kind: "failed", message: `it threw ${typeof error === "object" ? "an object" : "something"} that can't be read` };
  }
}
