/**
 * WebSockets, spoken over the runtime's own sockets: that of Node 20 can't be had without a flag, and none can carry a key in
 * its headers in every runtime. Browsers have no sockets: see line.ts.
 */

import { builtin, type Endpoint } from "./config.js";
import { joined, unheld, type Connection } from "./connection.js";
import { errorFrom, NetworkError } from "./errors.js";
import type { Heard, Line } from "./line.js";
import { VERSION } from "./version.js";

const LONGEST_HEAD = 64 * 1024;
const ANSWER_MS = 60_000; // in which a server says whether it takes a connection
const ACCEPT = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"; // of RFC 6455

/** The part of a socket of Node that is used here. Bun and Deno have it too. */
export interface Socket {
  on(event: "data", listener: (data: Uint8Array) => void): void;
  on(event: "error", listener: (error: Error) => void): void;
  on(event: "end" | "close" | "connect" | "secureConnect", listener: () => void): void;
  write(data: Uint8Array | string, done: (error?: Error | null) => void): boolean;
  end(done: () => void): void;
  destroy(): void;
  pause(): void;
  resume(): void;
  unref(): void;
}

export interface Listener {
  on(event: "error", listener: (error: Error) => void): void;
  listen(port: number, host: string, done: () => void): void;
  address(): { address: string; port: number };
  close(done: () => void): void;
}

interface Net {
  connect(options: { host: string; port: number }): Socket;
  createServer(options: { allowHalfOpen: true }, accept: (socket: Socket) => void): Listener;
}

interface Tls {
  connect(options: { host: string; port: number; servername?: string; ALPNProtocols: string[] }): Socket;
}

/** Node's module of sockets, plain or with TLS. */
export function sockets(name: "node:net"): Net;
export function sockets(name: "node:tls"): Tls;
export function sockets(name: string): unknown {
  const found = builtin(name);
  if (found === undefined) throw new TypeError("this runtime has no sockets, as browsers have none");
  return found;
}

/** A WebSocket over a socket. */
export class SocketLine implements Line {
  readonly #socket: Socket;
  readonly #first: Uint8Array;
  #over = false;

  private constructor(socket: Socket, first: Uint8Array) {
    this.#socket = socket;
    this.#first = first;
  }

  /** Opens that of a route. */
  static async open({ endpoint }: Connection, path: string, signal: AbortSignal | undefined): Promise<SocketLine> {
    const url = new URL(endpoint.url + path);
    const host = url.hostname.replace(/^\[|\]$/g, "");
    const secure = url.protocol === "https:";
    const at = { host, port: Number(url.port || (secure ? 443 : 80)) };
    const named = /^[\d.]+$|:/.test(host) ? {} : { servername: host };
    const socket = secure ? sockets("node:tls").connect({ ...at, ...named, ALPNProtocols: ["http/1.1"] }) : sockets("node:net").connect(at);
    const abort = () => socket.destroy();
    signal?.addEventListener("abort", abort, { once: true });
    try {
      const key = btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(16))));
      const head = await greeted(socket, secure ? "secureConnect" : "connect", request(url, key, endpoint));
      if (head.status !== 101) throw errorFrom(head.status, head.headers, new TextDecoder().decode(head.rest), false);
      if (head.headers.get("sec-websocket-accept") !== (await accepted(key))) throw new NetworkError("the server does not speak WebSocket");
      return new SocketLine(socket, head.rest);
    } catch (error) {
      socket.destroy();
      if (signal?.aborted) throw signal.reason;
      throw error;
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  /** Answers pings, too. */
  listen(heard: Heard, { largest, quietMs }: { largest: number; quietMs?: number }): void {
    const messages = new Messages(largest);
    let silence: ReturnType<typeof setTimeout> | undefined;
    const wait = () => {
      clearTimeout(silence);
      if (quietMs !== undefined && !this.#over) silence = unheld(() => over(undefined, "it was silent for too long"), quietMs);
    };
    const over = (code: number | undefined, why: string, cause?: unknown) => {
      if (this.#over) return;
      this.close();
      wait();
      heard.over(code, why, cause);
    };
    const hear = (data: Uint8Array) => {
      wait();
      try {
        for (const { kind, data: said } of messages.feed(data)) {
          if (this.#over) return;
          if (kind === 8) return over(said.length < 2 ? undefined : said[0]! * 256 + said[1]!, "the server ended it");
          if (kind === 9) this.send(10, said).catch(() => undefined); // a ping; what is broken says so itself
          if (kind === 1 || kind === 2) heard.message(kind, said);
        }
      } catch (error) {
        over(undefined, (error as Error).message, error);
      }
    };
    wait();
    this.#socket.on("data", hear);
    this.#socket.on("error", (error) => over(undefined, error.message, error));
    this.#socket.on("close", () => over(undefined, "it was closed"));
    if (this.#first.length > 0) hear(this.#first);
    this.#socket.resume();
  }

  send(kind: number, data: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#socket.write(masked(kind, data), (error) => (error ? reject(new NetworkError(`the connection broke: ${error.message}`, { cause: error })) : resolve()));
    });
  }

  close(): void {
    this.#over = true;
    this.#socket.destroy();
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  unref(): void {
    this.#socket.unref();
  }
}

/** What the server says: 1 text, 2 bytes, 8 the end, 9 a ping. */
interface Message {
  readonly kind: number;
  readonly data: Uint8Array;
}

/** Reads the server's messages from pieces of bytes cut anywhere. */
class Messages {
  readonly #largest: number;
  #left: Uint8Array[] = [];
  #size = 0; // of what is left
  #wanted = 2; // bytes, before there is more to be read
  #kind = 0; // of the message that has begun
  #begun = new Uint8Array(0); // frames of it, with room for more
  #has = 0; // bytes of it

  constructor(largest: number) {
    this.#largest = largest;
  }

  *feed(data: Uint8Array): Generator<Message> {
    this.#left.push(data);
    this.#size += data.length;
    if (this.#size < this.#wanted) return;
    const all = joined(this.#left);
    let at = 0;
    for (;;) {
      const head = all.subarray(at);
      const short = (head[1] ?? 0) & 127;
      const width = short === 126 ? 2 : short === 127 ? 8 : 0;
      this.#wanted = 2 + width;
      if (head.length < this.#wanted) break;
      const size = width === 0 ? short : head.subarray(2, 2 + width).reduce((sum, byte) => sum * 256 + byte, 0);
      if (this.#has + size > this.#largest || (head[1]! & 128) !== 0) throw new Error("it sent a message that can't be read");
      this.#wanted += size;
      if (head.length < this.#wanted) break;
      at += this.#wanted;
      const [kind, last] = [head[0]! & 15, (head[0]! & 128) !== 0];
      const said = head.subarray(2 + width, this.#wanted);
      if (kind >= 8) {
        yield { kind, data: said.slice() }; // which may come between the frames of a message
        continue;
      }
      if (kind > 0) this.#kind = kind;
      this.#begin(said);
      if (!last) continue;
      const whole = this.#begun.slice(0, this.#has);
      [this.#begun, this.#has] = [new Uint8Array(0), 0];
      yield { kind: this.#kind, data: whole };
    }
    this.#left = [all.slice(at)];
    this.#size = all.length - at;
  }

  /** Takes one more frame of a message: however many there are, they hold no more than their bytes. */
  #begin(frame: Uint8Array): void {
    const has = this.#has + frame.length;
    if (has > this.#begun.length) {
      const room = new Uint8Array(this.#has === 0 ? has : 2 * has);
      room.set(this.#begun.subarray(0, this.#has));
      this.#begun = room;
    }
    this.#begun.set(frame, this.#has);
    this.#has = has;
  }
}

/** A frame of a client, which must hide what it says from caches. */
function masked(kind: number, data: Uint8Array): Uint8Array {
  const mask = crypto.getRandomValues(new Uint8Array(4));
  const length = [24, 16, 8, 0].map((shift) => (data.length >>> shift) & 255);
  const size = data.length < 126 ? [data.length] : data.length < 65536 ? [126, ...length.slice(2)] : [127, 0, 0, 0, 0, ...length];
  size[0]! |= 128;
  const frame = new Uint8Array(1 + size.length + 4 + data.length);
  frame.set([128 | kind, ...size, ...mask]);
  const start = 1 + size.length + 4;
  for (let i = 0; i < data.length; i++) frame[start + i] = data[i]! ^ mask[i & 3]!;
  return frame;
}

function request(url: URL, key: string, { apiKey, headers = {} }: Endpoint): string {
  const lines = [
    `GET ${url.pathname} HTTP/1.1`,
    `Host: ${url.host}`,
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    `Sec-WebSocket-Key: ${key}`,
    `User-Agent: pandastack-typescript/${VERSION}`,
    ...(apiKey === undefined ? [] : [`Authorization: Bearer ${apiKey}`]),
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
  ];
  return `${lines.join("\r\n")}\r\n\r\n`;
}

async function accepted(key: string): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-1", new TextEncoder().encode(key + ACCEPT));
  return btoa(String.fromCharCode(...new Uint8Array(hash)));
}

interface Head {
  readonly status: number;
  readonly headers: Headers;
  /** What came behind it: the whole body of a refusal. */
  readonly rest: Uint8Array;
}

/** Sends a request, and reads the head of the answer; the socket is held then. */
function greeted(socket: Socket, connected: "connect" | "secureConnect", words: string): Promise<Head> {
  return new Promise((resolve, reject) => {
    let [made, done, seen] = [false, false, ""];
    const silence = unheld(() => broke("it does not answer"), ANSWER_MS);
    const finish = (outcome: Head | NetworkError) => {
      if (done) return;
      done = true;
      clearTimeout(silence);
      if (outcome instanceof Error) reject(outcome);
      else resolve(outcome);
    };
    const broke = (why: string, cause?: unknown) => finish(new NetworkError(`can't connect to the server: ${why}`, { sent: made, cause }));
    socket.on("error", (error) => broke(error.message, error));
    socket.on("close", () => broke("it closed the connection"));
    socket.on(connected, () => {
      made = true;
      socket.write(words, (error) => error && broke(error.message, error));
    });
    socket.on("data", (data) => {
      if (done) return;
      seen += Array.from(data, (byte) => String.fromCharCode(byte)).join("");
      const end = seen.indexOf("\r\n\r\n");
      if (end < 0 && seen.length > LONGEST_HEAD) return broke("its answer is no HTTP");
      if (end < 0) return;
      const [first, ...lines] = seen.slice(0, end).split("\r\n");
      const status = Number(/^HTTP\/1\.\d (\d{3})/.exec(first!)?.[1]);
      if (!status) return broke("its answer is no HTTP");
      let headers: Headers;
      try {
        headers = new Headers(lines.map((line): [string, string] => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]));
      } catch (error) {
        return broke("its answer is no HTTP", error);
      }
      const rest = seen.slice(end + 4);
      if (status !== 101 && rest.length < Math.min(Number(headers.get("content-length") ?? 0), LONGEST_HEAD)) return; // the reason is on its way
      socket.pause();
      finish({ status, headers, rest: Uint8Array.from(rest, (letter) => letter.charCodeAt(0)) });
    });
  });
}

