// Tools: what the server is told of functions, and how calls of them are carried out. What Python makes of it: test/test_tools.py.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { createServer } from "node:net";
import { test } from "node:test";
import * as sdk from "@pandastack/sdk";
import { KEY, SANDBOX, serve as serveAny } from "./fake-server.mjs";

const { MCPServer, OpenAPI, Sandbox, tool } = sdk;
const NUMBERS = { type: "object", properties: { a: { type: "number" }, b: { type: "number" } }, required: ["a", "b"] };
const add = tool({ name: "add", description: "Add.", parameters: NUMBERS, returns: { type: "number" }, execute: ({ a, b }) => a + b });
const named = (name, execute, more = {}) => tool({ name, execute, ...more });

/** A server at which programs connect; `lines` gives those connections, one after the other. */
async function serve(t, path = "/sandboxes/sb_1/tools/connect") {
  const { server, client, sandbox } = await serveAny(t, sdk);
  const [come, waits] = [[], []];
  server.on("GET", path, {
    line: (line) => {
      line.send({ type: "connected", call_id: "" });
      const wait = waits.shift();
      if (wait) wait(line);
      else come.push(line);
    },
  });
  server.on("PUT", "/sandboxes/sb_1/tools", (call) => [200, { tools: (call.json.functions ?? []).map(({ name }) => ({ name })), policy: {} }]);
  const line = () => (come.length > 0 ? Promise.resolve(come.shift()) : new Promise((resolve) => waits.push(resolve)));
  return { server, client, sandbox, line };
}

async function call(line, tool, args = {}, id = "c1") {
  line.send({ type: "tool_call", call_id: id, sandbox_id: "sb_1", context_id: "ctx", execution_id: "ex", tool, arguments: args });
  const { type, call_id, ...outcome } = (await line.next()).json;
  assert.deepEqual([type, call_id], ["tool_result", id]);
  return outcome;
}

test("a create tells the server what there is, and connects", async (t) => {
  const { server, client, line } = await serve(t);
  const pay = named("pay", () => "paid", { risky: true, timeoutSeconds: 5 });
  const sandbox = await Sandbox.create({
    template: "code-interpreter",
    tools: [
      add,
      { crm: [named("rename", () => null), named("other.gone", () => null)], till: pay },
      new OpenAPI("shop", { url: "https://shop.example.com/openapi.json", baseUrl: "https://shop.example.com", headers: { Authorization: { ref: "k", prefix: "Bearer " }, "X-Who": "me" }, include: ["list_*"] }),
      new OpenAPI("told", { document: { openapi: "3.1.0" } }),
      new MCPServer("notes", "https://notes.example.com/mcp", { include: ["add"] }),
      "warehouse",
    ],
    toolPolicy: { approve: "risky", timeout_seconds: 9 },
  }, client);
  t.after(() => sandbox.tools.close());
  assert.deepEqual(server.sent("POST", "/sandboxes")[0].json.tools, {
    functions: [
      { name: "add", description: "Add.", parameters: NUMBERS, returns: { type: "number" } },
      { name: "crm.rename" }, { name: "other.gone" }, { name: "till.pay", risky: true, timeout_seconds: 5 },
    ],
    http: {
      shop: { url: "https://shop.example.com/openapi.json", base_url: "https://shop.example.com", headers: { Authorization: { ref: "k", prefix: "Bearer " }, "X-Who": { value: "me" } }, include: ["list_*"] },
      told: { openapi: { openapi: "3.1.0" } },
    },
    mcp: { notes: { url: "https://notes.example.com/mcp", include: ["add"] } },
    use: ["warehouse"],
    policy: { approve: "risky", timeout_seconds: 9 },
  });
  const [asked] = server.sent("GET", "/tools/connect");
  assert.equal(asked.headers.authorization, `Bearer ${KEY}`);
  const at = await line();
  assert.deepEqual(await call(at, "add", { a: 1, b: 2 }), { result: 3 });
  assert.deepEqual(await call(at, "till.pay"), { result: "paid" });
  assert.deepEqual(await call(at, "pay"), { error: { kind: "not_found", message: "this program has no function pay" } });
});

test("results and failures as Python is to see them", async (t) => {
  const { sandbox, line } = await serve(t);
  const infos = [];
  const broken = Object.assign(new RangeError("too far"), { kind: "unavailable", hint: "come nearer" });
  await sandbox.tools.set([
    named("about", (_, info) => void infos.push(info)),
    named("many", async () => ({ when: new Date(0), some: new Set([1]), by: new Map([["ü", [null, undefined]]]), none: undefined })),
    named("raises", () => { throw new TypeError("no such thing"); }),
    named("kind", () => { throw broken; }),
    named("words", () => { throw "just words"; }), // eslint-disable-line no-throw-literal
    named("nan", () => [Number.NaN]),
    named("bytes", () => ({ raw: Buffer.of(1) })),
    named("big", () => 2n ** 80n),
    named("round", () => { const at = {}; at.at = at; return at; }),
    named("huge", () => "ü".repeat(33 << 20)),
    named("large", ({ size }) => "x".repeat(size)),
  ]);
  t.after(() => sandbox.tools.close());
  const at = await line();
  assert.deepEqual(await call(at, "about"), { result: null });
  const [{ signal, ...info }] = infos;
  assert.deepEqual(info, { id: "c1", sandboxId: "sb_1", contextId: "ctx", executionId: "ex" });
  assert.equal(signal.aborted, false);
  assert.deepEqual(await call(at, "many"), { result: { when: "1970-01-01T00:00:00.000Z", some: [1], by: { ü: [null, null] } } });
  assert.deepEqual(await call(at, "raises"), { error: { kind: "failed", message: "TypeError: no such thing" } });
  assert.deepEqual(await call(at, "kind"), { error: { kind: "unavailable", message: "RangeError: too far", hint: "come nearer" } });
  assert.deepEqual(await call(at, "words"), { error: { kind: "failed", message: "just words" } });
  for (const name of ["nan", "bytes", "big", "round"]) assert.equal((await call(at, name)).error.kind, "bad_result", name);
  assert.equal((await call(at, "huge")).error.kind, "too_large");
  for (const size of [100, 200, 70_000]) assert.equal((await call(at, "large", { size })).result.length, size);
});

test("what a function throws or gives may be anything, even what throws in turn", async (t) => {
  const { sandbox, line } = await serve(t);
  const unreadable = Proxy.revocable({}, {});
  unreadable.revoke();
  const thrown = {
    bare: Object.create(null), words: { toString() { throw new Error("no"); } }, kind: { get kind() { throw new Error("no"); } }, gone: unreadable.proxy,
    message: Object.assign(new Error(), { message: { toString() { throw 1; } } }), // eslint-disable-line no-throw-literal
    nothing: undefined, symbol: Symbol("s"), plain: { message: "a plain object", kind: "unavailable" },
  };
  const throwing = Object.entries(thrown).map(([name, what]) => named(name, () => { throw what; }));
  await sandbox.tools.set([...throwing, named("no_form", () => ({ toJSON() {} })), named("no_words", () => ({ toJSON() { throw null; } }))]); // eslint-disable-line no-throw-literal
  t.after(() => sandbox.tools.close());
  const at = await line();
  const failures = {};
  for (const name of Object.keys(thrown)) failures[name] = (await call(at, name)).error;
  const { nothing, symbol, plain, ...odd } = failures;
  for (const [name, error] of Object.entries(odd)) assert.deepEqual(error, { kind: "failed", message: "it threw an object that can't be read" }, name);
  assert.deepEqual([nothing, symbol, plain], [{ kind: "failed", message: "undefined" }, { kind: "failed", message: "Symbol(s)" }, { kind: "unavailable", message: "a plain object" }]);
  assert.deepEqual(await call(at, "no_form"), { result: null });
  assert.deepEqual(await call(at, "no_words"), { error: { kind: "bad_result", message: "what it gave cannot be JSON: null" } });
});

test("a server that speaks no HTTP, or ends the connection before it takes calls, is an error of who connects", async (t) => {
  let answer = "";
  const server = createServer((socket) => socket.on("error", () => undefined).once("data", (asked) => {
    const key = /Sec-WebSocket-Key: (.*)\r/.exec(asked)[1];
    const accept = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
    socket.end(answer.replace("ACCEPT", accept));
  }));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const url = `http://127.0.0.1:${server.address().port}`;
  const other = new sdk.Client({ apiUrl: url, apiKey: KEY, maxRetries: 0 });
  const { Connector } = await import("../dist/esm/connector.js");
  for (const [said, words] of [
    ["HTTP/1.1 101 Switching Protocols\r\nno colon here\r\n\r\n", /no HTTP/],
    ["HTTP/1.1 200 OK\r\nX Y: 1\r\n\r\n", /no HTTP/],
    ["HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: ACCEPT\r\n\r\n", /before calls were taken/],
    ["HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: ACCEPT\r\n\r\n\x81\x04null", /before calls were taken/],
  ]) {
    answer = said;
    const connector = new Connector(other.connection, "/sandboxes/sb_1/tools/connect", new Map());
    await assert.rejects(connector.ready, words);
  }
});

test("messages in pieces, pings between them, and many calls at once", async (t) => {
  const { sandbox, line } = await serve(t);
  const gates = [];
  await sandbox.tools.set([named("length", ({ text }) => text.length), named("wait", ({ n }) => new Promise((resolve) => gates.push(() => resolve(n))))]);
  t.after(() => sandbox.tools.close());
  const at = await line();
  const bytes = Buffer.from(JSON.stringify({ type: "tool_call", call_id: "long", tool: "length", arguments: { text: "ü".repeat(200_000) } }));
  at.frame(1, bytes.subarray(0, 3), false);
  at.frame(9, Buffer.from("there?"));
  at.frame(0, bytes.subarray(3, 100_001), false); // in the middle of a letter
  at.frame(0, bytes.subarray(100_001));
  const [one, other] = [await at.next(), await at.next()];
  assert.deepEqual([one.kind, one.text], [10, "there?"]);
  assert.deepEqual(other.json, { type: "tool_result", call_id: "long", result: 200_000 });
  for (let n = 0; n < 100; n++) at.send({ type: "tool_call", call_id: String(n), tool: "wait", arguments: { n } });
  while (gates.length < 100) await new Promise((resolve) => setImmediate(resolve));
  for (const open of gates.reverse()) open();
  const results = [];
  for (let n = 0; n < 100; n++) results.push((await at.next()).json);
  assert.deepEqual(results.map(({ result }) => result), Array.from({ length: 100 }, (_, n) => 99 - n));
  assert.ok(results.every(({ call_id: id, result }) => id === String(result)));
});

test("a call that nobody waits for any more is told so, and is not answered", async (t) => {
  const { sandbox, line } = await serve(t);
  const [seen, began] = [[], []];
  const wait = (_, { signal }) => new Promise((_, reject) => {
    began.shift()?.();
    signal.addEventListener("abort", () => { seen.push(signal.reason.message); reject(signal.reason); });
  });
  await sandbox.tools.set([named("wait", wait), add]);
  const begin = async (at, id) => {
    const here = new Promise((resolve) => began.push(resolve));
    at.send({ type: "tool_call", call_id: id, tool: "wait" });
    await here;
  };
  const at = await line();
  await begin(at, "w");
  at.send({ type: "tool_cancel", call_id: "w" });
  assert.deepEqual(await call(at, "add", { a: 1, b: 1 }), { result: 2 }, "the next that is said is of another call");
  assert.match(seen[0], /cancelled/);
  await begin(at, "x");
  at.socket.destroy(); // and it connects again
  const again = await line();
  assert.match(seen[1], /nobody waits/);
  assert.deepEqual(await call(again, "add", { a: 2, b: 2 }), { result: 4 });
  await begin(again, "y");
  sandbox.tools.close();
  await again.closed;
  assert.equal(seen.length, 3);
});

test("it connects again while the server restarts, and not when it is not wanted", async (t) => {
  const { server, sandbox, line } = await serve(t);
  await sandbox.tools.set([add]);
  await line();
  await server.stop();
  await new Promise((resolve) => setTimeout(resolve, 300)); // so that a try has failed
  await server.restart();
  const at = await line();
  assert.deepEqual(await call(at, "add", { a: 1, b: 2 }), { result: 3 });
  at.end(1008, "another program connected in its place");
  await at.closed;
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(server.sent("GET", "/tools/connect").filter(({ path }) => path).length, 2);
});

test("a sandbox whose functions can't be connected is not left behind", async (t) => {
  const { server, client } = await serve(t);
  server.on("GET", "/sandboxes/sb_1/tools/connect", [501, { error: "this server has no tools", code: "unsupported", hint: "ask for some" }]);
  await assert.rejects(Sandbox.create({ tools: [add] }, client), (error) => error instanceof sdk.ServerError && /no tools \(ask for some\)/.test(error.message));
  assert.equal(server.sent("DELETE", "/sandboxes/sb_1").length, 1);
});

test("copies are served, too, and a killed sandbox is not", async (t) => {
  const { server, sandbox, line } = await serve(t, "/sandboxes/sb_\\d/tools/connect");
  await sandbox.tools.set([add]);
  const first = await line();
  server.on("POST", "/sandboxes/sb_1/fork", [201, { children: [{ ...SANDBOX, id: "sb_2" }] }]);
  const copy = await sandbox.fork();
  const second = await line();
  assert.deepEqual(await call(second, "add", { a: 5, b: 5 }), { result: 10 });
  server.on("DELETE", "/sandboxes/sb_2", [204]);
  await copy.kill();
  await second.closed;
  assert.deepEqual(await call(first, "add", { a: 5, b: 6 }), { result: 11 });
  await sandbox.kill();
  await first.closed;
});

test("schemas of libraries say what the server is told, and make the arguments", async (t) => {
  const { server, sandbox, line } = await serve(t);
  const when = {
    "~standard": {
      version: 1,
      vendor: "test",
      validate: async ({ at }) => (Number.isNaN(Date.parse(at)) ? { issues: [{ message: "no date", path: [{ key: "at" }] }] } : { value: { at: new Date(at) } }),
      jsonSchema: { input: ({ target }) => ({ $schema: target, type: "object", properties: { at: { type: "string" } } }) },
    },
  };
  await sandbox.tools.set([named("year", ({ at }) => at.getUTCFullYear(), { parameters: when, returns: { type: "integer" } })]);
  t.after(() => sandbox.tools.close());
  assert.deepEqual(server.sent("PUT", "/tools")[0].json.functions, [{ name: "year", parameters: { type: "object", properties: { at: { type: "string" } } }, returns: { type: "integer" } }]);
  const at = await line();
  assert.deepEqual(await call(at, "year", { at: "2026-05-01" }), { result: 2026 });
  assert.deepEqual(await call(at, "year", { at: "soon" }), { error: { kind: "invalid", message: "TypeError: at: no date" } });
  const { jsonSchema: _, ...old } = when["~standard"];
  assert.throws(() => named("year", () => 1, { parameters: { "~standard": old } }), /does not say its JSON schema/);
});

test("what can't be a tool is said before anything is sent", async (t) => {
  const { server, sandbox } = await serve(t);
  for (const [tools, words] of [
    [add, /must be an array/],
    [[(a) => a], /does not say what its arguments are: give tool\(/],
    [[{ ns: [(a) => a] }], /does not say what its arguments are/],
    [[{ name: "add", execute: () => 1 }], /must be tool\(…\).* not string/],
    [[7], /not number/],
    [[null], /not null/],
    [[add, add], /two tools add/],
  ]) await assert.rejects(sandbox.tools.set(tools), (error) => error instanceof TypeError && words.test(error.message), String(words));
  asInAPage(t);
  const { WebSocket } = globalThis;
  delete globalThis.WebSocket;
  t.after(() => WebSocket && (globalThis.WebSocket = WebSocket));
  await assert.rejects(sandbox.tools.set([add]), /can't be tools here: this runtime has neither sockets nor WebSockets/);
  assert.throws(() => tool({ name: "x" }), /execute must be a function/);
  assert.throws(() => tool({ execute: () => 1 }), /name must be a string/);
  assert.equal(server.calls.length, 0);
});

/** Takes the runtime's sockets away for a test. */
function asInAPage(t) {
  const { getBuiltinModule } = process;
  process.getBuiltinModule = () => undefined;
  t.after(() => (process.getBuiltinModule = getBuiltinModule));
}

const noPage = typeof WebSocket === "undefined" && "this Node has no WebSocket of its own";

test("without sockets the platform's WebSocket is used, and the key is one of its subprotocols", { skip: noPage }, async (t) => {
  const { server, sandbox, line } = await serve(t);
  asInAPage(t);
  await sandbox.tools.set([add, named("large", ({ size }) => "ü".repeat(size))]);
  t.after(() => sandbox.tools.close());
  const [asked] = server.sent("GET", "/tools/connect");
  assert.deepEqual([asked.headers["sec-websocket-protocol"], asked.headers.authorization], [`pandastack.v1, pandastack.bearer.${KEY}`, undefined]);
  assert.ok(!asked.path.includes(KEY));
  const at = await line();
  at.send({ type: "ping", call_id: "" });
  assert.deepEqual(await call(at, "add", { a: 1, b: 2 }), { result: 3 });
  assert.equal((await call(at, "large", { size: 40_000 })).result.length, 40_000);
  at.socket.destroy(); // and it connects again
  const again = await line();
  assert.deepEqual(await call(again, "add", { a: 2, b: 2 }), { result: 4 });
  again.end(1008, "another program connected in its place");
  again.socket.end(); // as a server does it, which the platform leaves to it
  await again.closed;
  await new Promise((resolve) => setTimeout(resolve, 300));
  assert.equal(server.sent("GET", "/tools/connect").length, 2, "and not when it is not wanted");
});

test("why a page's WebSocket was refused is asked for without one", { skip: noPage }, async (t) => {
  const { server, client, sandbox } = await serve(t);
  asInAPage(t);
  const at = "/sandboxes/sb_1/tools/connect";
  for (const [status, code, kind] of [[401, "unauthenticated", sdk.AuthError], [409, "conflict", sdk.ConflictError], [501, "unsupported", sdk.ServerError]]) {
    server.on("GET", at, [status, { error: "no", code }]);
    await assert.rejects(sandbox.tools.set([add]), (error) => error instanceof kind && error.statusCode === status);
  }
  server.on("GET", at, [426, { error: "this route speaks WebSocket", code: "invalid" }]);
  await assert.rejects(sandbox.tools.set([add]), (error) => error instanceof sdk.NetworkError && /proxy/.test(error.hint));
  await assert.rejects(sandbox.dial(7, { signal: AbortSignal.abort(new Error("enough")) }), /enough/);
  const odd = new sdk.Client({ apiUrl: client.apiUrl, apiKey: "a/b" });
  await assert.rejects(sdk.Sandbox.fromInfo(SANDBOX, odd).dial(7), (error) => error instanceof TypeError && !error.message.includes("a/b"));
});

test("an agent's run is served until it has ended", async (t) => {
  const { server, line } = await serve(t, "/agents/ru_1/connect");
  const agent = new sdk.Agent("openai:m", { apiUrl: server.url, apiKey: KEY, tools: [add], toolPolicy: { approve: "always" }, limits: { toolTokens: 7 } });
  server.on("POST", "/agents", [201, { id: "ru_1", task: "t", status: "running" }]);
  await agent.start("t");
  const { tools, limits } = server.sent("POST", "/agents")[0].json;
  assert.deepEqual([tools.functions.map(({ name }) => name), tools.policy, limits], [["add"], { approve: "always" }, { tool_tokens: 7 }]);
  const at = await line();
  assert.deepEqual(await call(at, "add", { a: 1, b: 2 }), { result: 3 });
  at.end(1008, "the run has ended");
  await at.closed;
  server.on("GET", "/agents/ru_1/connect", [409, { error: "the run ru_1 has ended", code: "conflict" }]);
  await agent.start("one that was quick");
});

test("lists of tools, calls and approvals, and decisions", async (t) => {
  const { server, client, sandbox } = await serve(t);
  const approval = { id: "ap_1", tool: "pay", arguments: { cents: 5 }, status: "pending" };
  server.on("GET", "/sandboxes/sb_1/tools", [200, { tools: [{ name: "add" }], policy: {} }]);
  server.on("GET", "/sandboxes/sb_1/tools/calls", [200, { calls: [{ tool: "add", kind: "ok" }] }]);
  server.on("GET", "/approvals", [200, { approvals: [approval] }]);
  server.on("GET", "/approvals/ap_1", [200, approval]);
  server.on("POST", "/approvals/ap_1", (call) => (call.json.approve ? [200, { ...approval, status: "approved" }] : [409, { error: "it was decided before: approved", code: "conflict" }]));
  assert.deepEqual(await sandbox.tools.list(), [{ name: "add" }]);
  assert.deepEqual(await sandbox.tools.calls({ limit: 3 }), [{ tool: "add", kind: "ok" }]);
  assert.deepEqual(await sandbox.tools.approvals(), [approval]);
  await sandbox.tools.approvals({ status: "all" });
  await client.approvals.list({ agentId: "ru_1", status: "denied" });
  assert.deepEqual(server.sent("GET", "/approvals").map(({ query }) => query), [{ sandbox_id: "sb_1", status: "pending" }, { sandbox_id: "sb_1" }, { agent_id: "ru_1", status: "denied" }]);
  assert.equal(server.sent("GET", "/calls")[0].query.limit, "3");
  assert.deepEqual(await client.approvals.get("ap_1"), approval);
  assert.equal((await client.approvals.decide("ap_1", true, "fine")).status, "approved");
  await assert.rejects(client.approvals.decide("ap_1", false, { reason: "late" }), sdk.ConflictError);
  assert.deepEqual(server.sent("POST", "/approvals/ap_1").map(({ json }) => json), [{ approve: true, reason: "fine" }, { approve: false, reason: "late" }]);
  await assert.rejects(client.approvals.decide("ap_1", "yes"), TypeError);
});

test("a program ends though its functions are connected", async (t) => {
  const { server, line } = await serve(t);
  const dist = new URL("../dist/esm/index.js", import.meta.url).href;
  const program = `import { Client, Sandbox, tool } from ${JSON.stringify(dist)};
    const client = new Client({ apiUrl: "${server.url}", apiKey: "${KEY}" });
    await Sandbox.create({ tools: [tool({ name: "add", execute: () => 1 })] }, client);
    console.log("the end");`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", program], { stdio: ["ignore", "pipe", "inherit"], timeout: 60_000 });
  let said = "";
  child.stdout.on("data", (data) => (said += data));
  const code = await new Promise((resolve) => child.on("exit", resolve));
  assert.deepEqual([code, said], [0, "the end\n"]);
  await (await line()).closed;
});
