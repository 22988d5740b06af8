// A PandaStack server in this process: it speaks the wire, keeps what it is told in memory, and breaks when asked to.
import { createHash } from "node:crypto";
import { createServer, STATUS_CODES } from "node:http";

export const KEY = `pds_${"0".repeat(32)}`;
export const SANDBOX = { id: "sb_1", template: "code-interpreter", status: "running", cpu: 2, memory_mb: 2048, metadata: { who: "me" }, created_at: "2026-03-01T10:00:00.123456789Z", expires_at: "2026-03-01T11:00:00Z" };

/** What a route does instead of answering. */
export const BREAK = Symbol("break the connection");
export const HANG = Symbol("never answer");

export class FakeServer {
  calls = []; // {method, path, query, headers, body, json}
  cells = new Map(); // by execution id: {code, events}
  scripts = new Map(); // by code: events
  cuts = []; // a stream each: break it after so many events
  #routes = [];
  #sockets = new Set();

  async start(port = 0) {
    this.#http = createServer((request, response) => void this.#serve(request, response));
    this.#http.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
    this.#http.on("upgrade", (request, socket) => void this.#upgrade(request, socket));
    await new Promise((resolve) => this.#http.listen(port, "127.0.0.1", resolve));
    this.port = this.#http.address().port;
    return this;
  }
  #http;

  /** Refuses new connections and breaks those there are, as a killed daemon does. */
  async stop() {
    const closed = new Promise((resolve) => this.#http.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  restart() {
    return this.start(this.port);
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Answers a route with [status, body, headers], a string, BREAK, HANG, or what a function of the call gives. */
  on(method, pattern, answer) {
    this.#routes.unshift([method, new RegExp(`^/v1${pattern}$`), answer]);
  }

  sent(method, ending) {
    return this.calls.filter((call) => call.method === method && call.path.endsWith(ending));
  }

  /** A WebSocket for a route that answers {line}, a function that gets it. */
  async #upgrade(request, socket) {
    const call = { method: request.method, path: request.url, headers: request.headers };
    this.calls.push(call);
    const answer = await this.#answer(call);
    if (!answer.line) {
      const body = JSON.stringify(answer[1]);
      return void socket.end(`HTTP/1.1 ${answer[0]} ${STATUS_CODES[answer[0]]}\r\nContent-Length: ${body.length}\r\n\r\n${body}`);
    }
    const accept = createHash("sha1").update(`${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
    const offered = request.headers["sec-websocket-protocol"]?.split(", ");
    const chosen = offered === undefined ? "" : `Sec-WebSocket-Protocol: ${offered[0]}\r\n`;
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n${chosen}\r\n`);
    answer.line(new Line(socket));
  }

  async #serve(request, response) {
    const chunks = [];
    try {
      for await (const chunk of request) chunks.push(chunk);
    } catch {
      return; // the client has gone away in the middle
    }
    const url = new URL(request.url, this.url);
    const body = Buffer.concat(chunks);
    const call = {
      method: request.method,
      path: decodeURIComponent(url.pathname),
      target: request.url,
      query: Object.fromEntries(url.searchParams),
      headers: request.headers,
      body,
      get json() {
        return JSON.parse(body.toString());
      },
      gone: new Promise((resolve) => response.on("close", resolve)),
    };
    this.calls.push(call);
    const answer = await this.#answer(call);
    if (answer === HANG) return;
    if (answer === BREAK) return void request.socket.destroy();
    if (answer.changes) return void this.#tell(response, answer);
    if (answer.events) return void this.#stream(response, answer.events, this.cuts.shift());
    const [status, content, headers = {}] = answer;
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(content === undefined ? undefined : Buffer.isBuffer(content) || typeof content === "string" ? content : JSON.stringify(content));
  }

  async #answer(call) {
    for (const [method, pattern, answer] of this.#routes) {
      const match = call.method === method && pattern.exec(call.path);
      if (match) return typeof answer === "function" ? await answer(call, ...match.slice(1)) : answer;
    }
    if (call.headers.authorization !== `Bearer ${KEY}`) return [401, { error: "the key is not known", code: "unauthenticated" }];
    for (const [method, pattern, answer] of this.#builtIn) {
      const match = call.method === method && new RegExp(`^/v1${pattern}$`).exec(call.path);
      if (match) return answer(call, ...match.slice(1));
    }
    return [404, { error: `no route ${call.method} ${call.path}`, code: "not_found" }];
  }

  #builtIn = [
    ["POST", "/sandboxes", (call) => [201, { ...SANDBOX, ...call.json }]],
    ["GET", "/sandboxes/sb_1", () => [200, SANDBOX]],
    ["DELETE", "/sandboxes/sb_1", () => [204]],
    ["POST", "/sandboxes/sb_1/repl/sessions", (call) => [201, { id: "ctx_1", language: call.json.language }]],
    ["DELETE", "/sandboxes/sb_1/repl/sessions/[^/]+", () => [204]],
    ["POST", "/sandboxes/sb_1/repl/sessions/[^/]+/run(/stream)?", (call) => this.run(call)],
    ["GET", "/sandboxes/sb_1/repl/sessions/[^/]+/executions/([^/]+)", (call, id) => this.attach(call, id)],
  ];

  /** What the server does with a cell: the same id with the same code attaches, with other code it is a conflict. */
  run(call) {
    const { execution_id: id, code } = call.json;
    if (!this.cells.has(id)) this.cells.set(id, { code, events: this.#eventsOf(id, code) });
    const cell = this.cells.get(id);
    if (cell.code !== code) return [409, { error: "this execution id ran other code", code: "conflict" }];
    if (call.path.endsWith("/stream")) return { events: cell.events };
    return [200, whole(cell.events)];
  }

  attach(call, id) {
    const cell = this.cells.get(id);
    if (!cell) return [404, { error: "no such execution", code: "not_found" }];
    return { events: cell.events.filter((event) => event.seq > Number(call.query.after)) };
  }

  #eventsOf(id, code) {
    const script = this.scripts.get(code) ?? [{ type: "result", data: { "text/plain": code }, is_last_expression: true }];
    const shown = script.filter((event) => event.type !== "end");
    const ending = { end: "ok", state_survived: true, exit: 0, exit_code: 0, duration_ms: 1.5, ...script.find((event) => event.type === "end"), execution_id: id, execution_count: 1 };
    const events = [{ type: "started", execution_id: id, execution_count: 1 }, ...shown, { ...ending, type: "end" }];
    return events.map((event, index) => ({ ...event, seq: index + 1 }));
  }

  /** Events of one kind, and the end of the stream, unless it stays open or is broken off. */
  #tell(response, { changes, open, broken }) {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const text = changes.map((change) => `id: ${change.seq}\nevent: event\ndata: ${JSON.stringify(change)}\n\n`).join("");
    response.write(text === "" ? ": hello\n\n" : text, () => (broken ? response.destroy() : open || response.end()));
  }

  /** Events, cut into pieces anywhere, and broken off after `cut` of them. */
  #stream(response, events, cut) {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(": hello\n\n");
    for (const [index, { type, seq, whole, ...data }] of events.entries()) {
      if (index === cut) return void response.write("id: 99\nevent: std", () => response.destroy());
      const bytes = Buffer.from(`id: ${seq}\nevent: ${type}\ndata: ${JSON.stringify(whole ?? data)}\n\n`);
      const at = Math.max(1, bytes.findIndex((byte) => byte > 127) + 1 || 7); // in the middle of a letter, if there is a long one
      response.write(bytes.subarray(0, at));
      response.write(bytes.subarray(at));
    }
    response.end();
  }
}

/** The server's end of a WebSocket: messages are JSON. */
class Line {
  #left = Buffer.alloc(0);
  #said = [];
  #waits = [];

  constructor(socket) {
    this.socket = socket;
    socket.on("error", () => undefined);
    socket.on("end", () => socket.end());
    socket.on("data", (data) => this.#hear(data));
    this.closed = new Promise((resolve) => socket.on("close", resolve));
  }

  /** Sends a frame: of the kind 1 for text, 0 for more of a message, 8 for the end, 9 for a ping. */
  frame(kind, data, last = true) {
    const length = data.length < 126 ? Buffer.of(data.length) : Buffer.alloc(data.length < 65536 ? 3 : 9);
    if (length.length === 3) length.writeUInt16BE(data.length, (length[0] = 126) && 1);
    if (length.length === 9) length.writeBigUInt64BE(BigInt(data.length), (length[0] = 127) && 1);
    this.socket.write(Buffer.concat([Buffer.of((last ? 128 : 0) | kind), length, data]));
  }

  send(message) {
    this.frame(1, Buffer.from(JSON.stringify(message)));
  }

  /** Ends it with a code. */
  end(code, why) {
    this.frame(8, Buffer.concat([Buffer.of(code >> 8, code & 255), Buffer.from(why)]));
  }

  /** The next frame that comes: {kind, text, json}. */
  next() {
    return this.#said.length > 0 ? Promise.resolve(this.#said.shift()) : new Promise((resolve) => this.#waits.push(resolve));
  }

  #hear(data) {
    this.#left = Buffer.concat([this.#left, data]);
    for (;;) {
      const short = this.#left[1] & 127;
      const start = 2 + (short === 126 ? 2 : short === 127 ? 8 : 0);
      if (this.#left.length < start + 4) return;
      const size = short === 126 ? this.#left.readUInt16BE(2) : short === 127 ? Number(this.#left.readBigUInt64BE(2)) : short;
      if (this.#left.length < start + 4 + size) return;
      const mask = this.#left.subarray(start, start + 4);
      const text = Buffer.from(this.#left.subarray(start + 4, start + 4 + size).map((byte, i) => byte ^ mask[i & 3])).toString();
      const said = { kind: this.#left[0] & 15, text, get json() { return JSON.parse(text); } };
      this.#left = this.#left.subarray(start + 4 + size);
      const wait = this.#waits.shift();
      if (wait) wait(said);
      else this.#said.push(said);
    }
  }
}

function whole(events) {
  const text = (type) => events.filter((event) => event.type === type).map((event) => event.text).join("");
  const results = events.filter((event) => event.type === "result").sort((a, b) => Number(b.is_last_expression ?? false) - Number(a.is_last_expression ?? false));
  const { type: _, seq: __, ...ending } = events.at(-1);
  return { ...ending, stdout: text("stdout"), stderr: text("stderr"), results: results.map((r) => r.data), results_meta: results.map((r) => ({ is_last_expression: r.is_last_expression ?? false })) };
}

/** For tests: a server that ends with the test, and a client of it. */
export async function serve(t, sdk, options = {}) {
  const server = await new FakeServer().start();
  t.after(() => server.stop().catch(() => undefined)); // the test may have stopped it
  const client = new sdk.Client({ apiUrl: server.url, apiKey: KEY, ...options });
  return { server, client, sandbox: sdk.Sandbox.fromInfo(SANDBOX, client) };
}
