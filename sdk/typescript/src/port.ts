/** Connections to ports of a sandbox, for any protocol over TCP. They travel as messages of a WebSocket. */

import { asyncDispose, type Connection } from "./connection.js";
import { NetworkError } from "./errors.js";
import { openLine, type Line } from "./line.js";
import { sockets, type Listener, type Socket } from "./websocket.js";

const PIECE = 32 * 1024; // of what is said at once
const LARGEST = 1 << 20; // message that the server sends

/** A connection to a port of a sandbox: see `Sandbox.dial`. A snapshot of the sandbox breaks it. */
export class PortConnection implements AsyncDisposable {
  /** What the program there says, until it says no more. */
  readonly readable: ReadableStream<Uint8Array>;
  /** What it is told. Closing it says that nothing more comes; what the program says can still be read. */
  readonly writable: WritableStream<Uint8Array>;
  readonly #line: Line;
  #heard!: ReadableStreamDefaultController<Uint8Array>;
  #over = false; // the program says no more

  /** @internal */
  constructor(line: Line, port: number) {
    this.#line = line;
    this.readable = new ReadableStream<Uint8Array>({
      start: (controller) => void (this.#heard = controller),
      pull: () => line.resume(),
      cancel: () => {
        this.#over = true; // for this stream, too
        this.close();
      },
    });
    this.writable = new WritableStream<Uint8Array>({
      write: async (data) => {
        for (let at = 0; at < data.length; at += PIECE) await line.send(2, data.subarray(at, at + PIECE));
      },
      close: () => line.send(1, new TextEncoder().encode("eof")),
      abort: () => this.close(),
    });
    const over = (_: unknown, why: string, cause?: unknown) => {
      if (!this.#over) this.#heard.error(new NetworkError(`the connection to port ${port} broke: ${why}`, { cause }));
      this.#over = true;
    };
    line.listen({ message: (kind, data) => this.#take(kind, data), over }, { largest: LARGEST });
  }

  /** Ends it, in both directions. What has come can still be read; a read that waits for more finds the end. */
  close(): void {
    if (!this.#over) this.#heard.close();
    this.#over = true;
    this.#line.close();
  }

  async [asyncDispose](): Promise<void> {
    this.close();
  }

  #take(kind: number, data: Uint8Array): void {
    if (this.#over) return;
    if (kind === 1) {
      this.#over = true; // "eof"
      this.#heard.close();
    } else if (data.length > 0) {
      this.#heard.enqueue(data);
      if ((this.#heard.desiredSize ?? 0) <= 0) this.#line.pause();
    }
  }
}

/**
 * Connects to a port.
 * @internal
 */
export async function dial(connection: Connection, path: string, port: number, signal: AbortSignal | undefined): Promise<PortConnection> {
  return new PortConnection(await openLine(connection, path, signal), port);
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
  const listener = sockets("node:net").createServer({ allowHalfOpen: true }, (local) => {
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
