/**
 * Connections to ports of a sandbox, for any protocol over TCP. They travel as messages of a WebSocket, which is spoken here
 * over the runtime's own sockets: that of Node 20 can't be had without a flag, and none can carry a key in every runtime.
 */

import { builtin } from "./config.js";
import { asyncDispose, type Connection } from "./connection.js";
import { errorFrom, NetworkError } from "./errors.js";
import { VERSION } from "./version.js";

const PIECE = 32 * 1024; // of what is said: a length of two bytes is enough for it
const LARGEST = 1 << 20; // message that it sends
const LONGEST_HEAD = 64 * 1024;
const ACCEPT = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"; // of RFC 6455

/** The part of a socket of Node that is used here. Bun and Deno have it too. */
interface Socket {
  on(event: "data", listener: (data: Uint8Array) => void): void;
  on(event: "error", listener: (error: Error) => void): void;
  on(event: "end" | "close" | "connect" | "secureConnect", listener: () => void): void;
  write(data: Uint8Array | string, done: (error?: Error | null) => void): boolean;
  end(done: () => void): void;
  destroy(): void;
  pause(): void;
  resume(): void;
}

interface Listener {
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

function sockets<T>(name: "node:net" | "node:tls"): T {
  const found = builtin(name) as T | undefined;
  if (found === undefined) throw new TypeError("this runtime has no sockets: use previewUrl or signedPreviewUrl");
  return found;
}

/** A connection to a port of a sandbox: see `Sandbox.dial`. A snapshot of the sandbox breaks it. */
export class PortConnection implements AsyncDisposable {
  /** What the program there says, until it says no more. */
  readonly readable: ReadableStream<Uint8Array>;
  /** What it is told. Closing it says that nothing more comes; what the program says can still be read. */
  readonly writable: WritableStream<Uint8Array>;
  readonly #socket: Socket;
  #heard!: ReadableStreamDefaultController<Uint8Array>;
  #over = false; // the program says no more

  /** @internal */
  constructor(socket: Socket, port: number, first: Uint8Array) {
    this.#socket = socket;
    const frames = new Frames();
    const broke = (why: string, cause?: unknown) => this.#fail(new NetworkError(`the connection to port ${port} broke${why}`, { cause }));
    const hear = (data: Uint8Array) => {
      try {
        for (const frame of frames.feed(data)) this.#take(frame);
      } catch (error) {
        broke(`: ${(error as Error).message}`, error);
      }
    };
    this.readable = new ReadableStream<Uint8Array>({
      start: (controller) => void (this.#heard = controller),
      pull: () => socket.resume(),
      cancel: () => this.close(),
    });
    this.writable = new WritableStream<Uint8Array>({
      write: async (data) => {
        for (let at = 0; at < data.length; at += PIECE) await this.#send(2, data.subarray(at, at + PIECE));
      },
      close: () => this.#send(1, new TextEncoder().encode("eof")),
      abort: () => this.close(),
    });
    socket.on("data", hear);
    socket.on("error", (error) => broke(`: ${error.message}`, error));
    socket.on("close", () => broke(""));
    if (first.length > 0) hear(first);
    socket.resume();
  }

  /** Ends it, in both directions. */
  close(): void {
    this.#over = true;
    this.#socket.destroy();
  }

  async [asyncDispose](): Promise<void> {
    this.close();
  }

  #take({ kind, data }: Frame): void {
    if (kind === 9) void this.#send(10, data).catch(() => undefined); // a ping; what is broken says so itself
    if (kind === 8) throw new Error("the server ended it");
    if (this.#over) return;
    if (kind === 1) {
      this.#over = true; // "eof"
      this.#heard.close();
    } else if (kind === 2 && data.length > 0) {
      this.#heard.enqueue(data);
      if ((this.#heard.desiredSize ?? 0) <= 0) this.#socket.pause();
    }
  }

  #fail(error: NetworkError): void {
    if (this.#over) return;
    this.#over = true;
    this.#heard.error(error);
    this.#socket.destroy();
  }

  #send(kind: number, data: Uint8Array): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#socket.write(masked(kind, data), (error) => (error ? reject(new NetworkError(`the connection broke: ${error.message}`, { cause: error })) : resolve()));
    });
  }
}

/** A message, or a piece of one, of the kind of its first piece: 1 text, 2 bytes, 8 the end, 9 a ping. */
interface Frame {
  readonly kind: number;
  readonly data: Uint8Array;
}

/** Reads the server's frames from pieces of bytes cut anywhere. */
class Frames {
  #left: Uint8Array = new Uint8Array(0);
  #kind = 0; // of the message that has begun

  *feed(data: Uint8Array): Generator<Frame> {
    const all = new Uint8Array(this.#left.length + data.length);
    all.set(this.#left);
    all.set(data, this.#left.length);
    let at = 0;
    for (;;) {
      const head = all.subarray(at);
      const short = (head[1] ?? 0) & 127;
      const width = short === 126 ? 2 : short === 127 ? 8 : 0;
      if (head.length < 2 + width) break;
      const size = width === 0 ? short : head.subarray(2, 2 + width).reduce((sum, byte) => sum * 256 + byte, 0);
      if (size > LARGEST || (head[1]! & 128) !== 0) throw new Error("it sent a message that can't be read");
      if (head.length < 2 + width + size) break;
      const kind = head[0]! & 15;
      if (kind === 1 || kind === 2) this.#kind = kind;
      yield { kind: kind === 0 ? this.#kind : kind, data: head.slice(2 + width, 2 + width + size) };
      at += 2 + width + size;
    }
    this.#left = all.slice(at);
  }
}

/** A frame of a client, which must hide what it says from caches. */
function masked(kind: number, data: Uint8Array): Uint8Array {
  const mask = crypto.getRandomValues(new Uint8Array(4));
  const size = data.length < 126 ? [data.length] : [126, data.length >> 8, data.length & 255];
  size[0]! |= 128;
  const frame = new Uint8Array(1 + size.length + 4 + data.length);
  frame.set([128 | kind, ...size, ...mask]);
  const start = 1 + size.length + 4;
  for (let i = 0; i < data.length; i++) frame[start + i] = data[i]! ^ mask[i & 3]!;
  return frame;
}

/**
 * Connects to a port.
 * @internal
 */
export async function dial(connection: Connection, path: string, port: number, signal: AbortSignal | undefined): Promise<PortConnection> {
  signal?.throwIfAborted();
  const url = new URL(connection.endpoint.url + path);
  const host = url.hostname.replace(/^\[|\]$/g, "");
  const secure = url.protocol === "https:";
  const at = { host, port: Number(url.port || (secure ? 443 : 80)) };
  const named = /^[\d.]+$|:/.test(host) ? {} : { servername: host };
  const socket = secure ? sockets<Tls>("node:tls").connect({ ...at, ...named, ALPNProtocols: ["http/1.1"] }) : sockets<Net>("node:net").connect(at);
  const abort = () => socket.destroy();
  signal?.addEventListener("abort", abort, { once: true });
  try {
    const key = btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(16))));
    const head = await greeted(socket, secure ? "secureConnect" : "connect", request(url, key, connection.endpoint.apiKey));
    if (head.status !== 101) throw errorFrom(head.status, head.headers, new TextDecoder().decode(head.rest), false);
    if (head.headers.get("sec-websocket-accept") !== (await accepted(key))) throw new NetworkError("the server does not speak WebSocket");
    return new PortConnection(socket, port, head.rest);
  } catch (error) {
    socket.destroy();
    if (signal?.aborted) throw signal.reason;
    throw error;
  } finally {
    signal?.removeEventListener("abort", abort);
  }
}

function request(url: URL, key: string, apiKey: string | undefined): string {
  const lines = [
    `GET ${url.pathname} HTTP/1.1`,
    `Host: ${url.host}`,
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    `Sec-WebSocket-Key: ${key}`,
    `User-Agent: pandastack-typescript/${VERSION}`,
    ...(apiKey === undefined ? [] : [`Authorization: Bearer ${apiKey}`]),
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
    const finish = (outcome: Head | NetworkError) => {
      if (done) return;
      done = true;
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
      const headers = new Headers(lines.map((line): [string, string] => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]));
      const rest = seen.slice(end + 4);
      if (status !== 101 && rest.length < Math.min(Number(headers.get("content-length") ?? 0), LONGEST_HEAD)) return; // the reason is on its way
      socket.pause();
      finish({ status, headers, rest: Uint8Array.from(rest, (letter) => letter.charCodeAt(0)) });
    });
  });
}

/** A port of this machine that leads to one of a sandbox: see `Sandbox.forward`. With `await using` it is closed at the end. */
export class Forwarding implements AsyncDisposable {
  /** The address of this machine that it listens on. */
  readonly host: string;
  /** The port of this machine. */
  readonly port: number;
  readonly #listener: Listener;
  readonly #open: Set<Socket>;

  /** @internal */
  constructor(listener: Listener, open: Set<Socket>) {
    ({ address: this.host, port: this.port } = listener.address());
    this.#listener = listener;
    this.#open = open;
  }

  /** Stops listening, and ends the connections there are. */
  async close(): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#listener.close(resolve));
    for (const socket of this.#open) socket.destroy();
    await closed;
  }

  async [asyncDispose](): Promise<void> {
    await this.close();
  }
}

/** @internal */
export function forward(reach: () => Promise<PortConnection>, host: string, port: number, onError: (error: unknown) => void): Promise<Forwarding> {
  const open = new Set<Socket>();
  const listener = sockets<Net>("node:net").createServer({ allowHalfOpen: true }, (local) => {
    open.add(local);
    local.pause();
    local.on("error", () => local.destroy()); // the program here is gone, which is its own affair
    local.on("close", () => open.delete(local));
    carry(local, reach).catch(onError).finally(() => local.destroy());
  });
  return new Promise((resolve, reject) => {
    listener.on("error", reject);
    listener.listen(port, host, () => resolve(new Forwarding(listener, open)));
  });
}

/** Passes bytes both ways until both sides have ended, or one has broken. */
async function carry(local: Socket, reach: () => Promise<PortConnection>): Promise<void> {
  const remote = await reach();
  try {
    local.on("close", () => remote.close());
    const up = heard(local).pipeTo(remote.writable);
    const down = remote.readable.pipeTo(told(local));
    await Promise.all([up, down]);
  } finally {
    remote.close();
  }
}

function heard(socket: Socket): ReadableStream<Uint8Array> {
  let over = false;
  return new ReadableStream<Uint8Array>({
    start(controller) {
      const end = () => {
        if (!over) controller.close();
        over = true;
      };
      socket.on("data", (data) => {
        if (over) return;
        controller.enqueue(new Uint8Array(data));
        if ((controller.desiredSize ?? 0) <= 0) socket.pause();
      });
      socket.on("end", end);
      socket.on("close", end);
    },
    pull: () => socket.resume(),
    cancel() {
      over = true;
      socket.destroy();
    },
  });
}

function told(socket: Socket): WritableStream<Uint8Array> {
  return new WritableStream<Uint8Array>({
    write: (data) => new Promise<void>((resolve, reject) => socket.write(data, (error) => (error ? reject(error) : resolve()))),
    close: () => new Promise<void>((resolve) => socket.end(resolve)),
    abort: () => socket.destroy(),
  });
}
