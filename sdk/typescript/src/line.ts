/** WebSockets of the API's routes: over the runtime's sockets, or, where a program has none, the platform's own. */

import { builtin } from "./config.js";
import { sleep, unheld, type Connection } from "./connection.js";
import { NetworkError, PandaStackError } from "./errors.js";
import { SocketLine } from "./websocket.js";

// What a page offers as subprotocols: one for the server to choose, and the key, for which no other header can be set.
const PROTOCOL = "pandastack.v1";
const KEY = "pandastack.bearer.";
const UNSENT = 4 << 20; // bytes that may wait in the browser

/** What hears of a WebSocket. */
export interface Heard {
  /** A message of text (1) or bytes (2). */
  message(kind: number, data: Uint8Array): void;
  /** It is over: with the code of RFC 6455 that the server gave, or because it broke. */
  over(code: number | undefined, why: string, cause?: unknown): void;
}

/** A WebSocket that is open. */
export interface Line {
  /**
   * Has somebody hear what comes. Call it once.
   *
   * @param limits a message above `largest` bytes breaks it, and so do `quietMs` in which the server says nothing.
   */
  listen(heard: Heard, limits: { largest: number; quietMs?: number }): void;
  /** Sends a message of text (1) or bytes (2). */
  send(kind: number, data: Uint8Array): Promise<void>;
  /** Ends it. Nobody hears of that. */
  close(): void;
  /** Holds back what comes, so that the server waits. A browser can't. */
  pause(): void;
  /** Takes it again. */
  resume(): void;
  /** Lets the program end while this is open. */
  unref(): void;
}

/** Whether a program here can have WebSockets at all. */
export function hasLines(): boolean {
  return builtin("node:net") !== undefined || typeof WebSocket === "function";
}

/**
 * Opens that of a route.
 *
 * @param path below /v1.
 * @throws what a request to the route throws: the key is wrong, there is no such sandbox.
 */
export async function openLine(connection: Connection, path: string, signal: AbortSignal | undefined): Promise<Line> {
  signal?.throwIfAborted();
  return builtin("node:net") !== undefined ? SocketLine.open(connection, path, signal) : PageLine.open(connection, path, signal);
}

/** One of the platform's. */
class PageLine implements Line {
  readonly #socket: WebSocket;
  readonly #early: MessageEvent[] = []; // came before somebody listened
  #over = false;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onmessage = (event) => this.#early.push(event);
  }

  static async open(connection: Connection, path: string, signal: AbortSignal | undefined): Promise<PageLine> {
    if (typeof WebSocket !== "function") throw new TypeError("this runtime has neither sockets nor WebSockets");
    const { url, apiKey } = connection.endpoint;
    if (!/^[\w!#$%&'*+.^`|~-]*$/.test(apiKey ?? "")) throw new TypeError("this key has characters that no page can send with a WebSocket");
    const offered = apiKey === undefined ? [PROTOCOL] : [PROTOCOL, KEY + apiKey];
    const line = new PageLine(new WebSocket(url.replace(/^http/, "ws") + path, offered));
    const leave = () => line.close();
    signal?.addEventListener("abort", leave, { once: true });
    const opened = await line.#opened();
    signal?.removeEventListener("abort", leave);
    signal?.throwIfAborted();
    if (!opened) throw await refusal(connection, path, signal);
    return line;
  }

  #opened(): Promise<boolean> {
    return new Promise((resolve) => {
      this.#socket.onopen = () => resolve(true);
      this.#socket.onclose = () => resolve(false);
    });
  }

  listen(heard: Heard, { largest, quietMs }: { largest: number; quietMs?: number }): void {
    let silence: ReturnType<typeof setTimeout> | undefined;
    const over = (code: number | undefined, why: string, cause?: unknown) => {
      clearTimeout(silence);
      if (this.#over) return;
      this.close();
      heard.over(code, why, cause);
    };
    const wait = () => {
      clearTimeout(silence);
      if (quietMs !== undefined && !this.#over) silence = unheld(() => over(undefined, "it was silent for too long"), quietMs);
    };
    const hear = ({ data }: { data: string | ArrayBuffer }) => {
      if (this.#over) return;
      wait();
      const said = typeof data === "string" ? new TextEncoder().encode(data) : new Uint8Array(data);
      try {
        if (said.length > largest) throw new Error("it sent a message that is too large");
        heard.message(typeof data === "string" ? 1 : 2, said);
      } catch (error) {
        over(undefined, (error as Error).message, error);
      }
    };
    wait();
    this.#socket.onmessage = hear;
    this.#socket.onclose = ({ code, reason, wasClean }) => over(wasClean ? code : undefined, reason || "it was closed");
    for (const event of this.#early.splice(0)) hear(event);
    if (this.#socket.readyState === WebSocket.CLOSED) over(undefined, "it was closed");
  }

  async send(kind: number, data: Uint8Array): Promise<void> {
    if (this.#socket.readyState !== WebSocket.OPEN) throw new NetworkError("the connection broke: it was closed");
    this.#socket.send(kind === 1 ? new TextDecoder().decode(data) : (data as Uint8Array<ArrayBuffer>));
    while (this.#socket.bufferedAmount > UNSENT && this.#socket.readyState === WebSocket.OPEN) await sleep(0.01, undefined); // no event says when it has gone
  }

  close(): void {
    this.#over = true;
    this.#socket.close();
  }

  pause(): void {
    // What comes waits in the memory of whoever reads it.
  }

  resume(): void {
    // See pause.
  }

  unref(): void {
    // A page does not end by itself.
  }
}

/** Why a handshake was refused. The platform keeps that to itself, but the same route tells it to who asks without one. */
async function refusal(connection: Connection, path: string, signal: AbortSignal | undefined): Promise<unknown> {
  try {
    await connection.send({ method: "GET", path, signal });
  } catch (error) {
    const welcome = error instanceof PandaStackError && error.statusCode === 426; // it would be let in
    if (!welcome) return error;
  }
  return new NetworkError("the connection broke before it was a WebSocket", { hint: "does a proxy before the server pass WebSockets on?" });
}
