// Everything but cells: errors, retries, files, commands, copies of sandboxes, where the server is.
import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import * as sdk from "@pandastack/sdk";
import { BREAK, HANG, KEY, SANDBOX, serve as serveAny } from "./fake-server.mjs";

const serve = (t, options) => serveAny(t, sdk, options);

const folder = async (t) => {
  const made = await mkdtemp(join(tmpdir(), "pandastack-sdk-"));
  t.after(() => rm(made, { recursive: true }));
  return made;
};

setFlagsFromString("--expose-gc");
const garbage = runInNewContext("gc"); // collects it

const collect = async (items) => {
  const all = [];
  for await (const item of items) all.push(item);
  return all;
};

// Errors and retries

test("errors say what the server said", async (t) => {
  const { client, server } = await serve(t);
  server.on("GET", "/templates/x", [400, { error: "too long", code: "invalid", hint: "shorten it", field: "name", request_id: "r1" }]);
  await assert.rejects(client.templates.get("x"), (error) => {
    assert.ok(error instanceof sdk.BadRequestError && error instanceof sdk.PandaStackError && error instanceof Error);
    assert.deepEqual([error.name, error.message, error.statusCode, error.code, error.hint, error.field, error.requestId], ["BadRequestError", "name: too long (shorten it)", 400, "invalid", "shorten it", "name", "r1"]);
    assert.deepEqual(error.response.error, "too long");
    return true;
  });
  server.on("GET", "/templates/x", [500, { error: "oops", request_id: "r2" }]);
  await assert.rejects(client.templates.get("x"), { name: "ServerError", message: "oops [request r2]" });
  server.on("GET", "/templates/x", [502, "<html>bad gateway", { "content-type": "text/html" }]);
  await assert.rejects(client.templates.get("x"), { name: "ServerError", message: "<html>bad gateway" });
  server.on("GET", "/templates/x", [404, { error: { code: "no", message: "nested" } }]);
  await assert.rejects(client.templates.get("x"), { name: "NotFoundError", message: "nested", code: "no" });
  server.on("GET", "/templates/x", [200, "<html>welcome", { "content-type": "text/html" }]);
  await assert.rejects(client.templates.get("x"), /no JSON.*apiUrl/);
});

test("a wrong key is said with what to do", async (t) => {
  const { server } = await serve(t);
  await assert.rejects(new sdk.Client({ apiUrl: server.url, apiKey: "pds_wrong" }).me(), (error) => error instanceof sdk.AuthError && /PANDASTACK_API_KEY/.test(error.message));
});

test("what is sent may take longer than the server may be silent", async (t) => {
  const [quietSeconds, pieces, piece] = [2, 30, new Uint8Array(1 << 20)];
  const slow = createServer(async (request, response) => {
    let [bytes, stops] = [0, 0];
    for await (const chunk of request) {
      bytes += chunk.length;
      if (request.url === "/v1/slow" && bytes >> 20 > stops) await sleep(100 * ((bytes >> 20) - stops), (stops = bytes >> 20)); // a disk that is
    }
    response.end(JSON.stringify({ bytes }));
  });
  await new Promise((resolve) => slow.listen(0, "127.0.0.1", resolve));
  t.after(() => slow.close());
  const { connection } = new sdk.Client({ apiUrl: `http://127.0.0.1:${slow.address().port}`, apiKey: KEY });
  const stream = async function* (pause) {
    for (let i = 0; i < pieces; i++) yield await sleep(pause, piece);
  };
  const send = async (path, content) => (await connection.send({ method: "PUT", path, content, quietSeconds })).object().bytes;
  const sent = await Promise.all([send("/slow", stream(0)), send("/slow", new Uint8Array(pieces << 20)), send("/quick", stream(100))]);
  assert.deepEqual(sent, [pieces << 20, pieces << 20, pieces << 20]);
});

test("headers for a proxy go with every call, stream and socket", async (t) => {
  const { server } = await serve(t);
  const client = new sdk.Client({ apiUrl: server.url, apiKey: KEY, headers: { "X-Proxy-Token": "let me in", accept: "x/y" } });
  const sandbox = await client.sandboxes.create("code-interpreter");
  assert.equal((await sandbox.runCode("1", { language: "python", onStdout: () => {} })).text, "1");
  server.on("GET", ".*/ports/80/connect", [409, { error: "nothing listens", code: "conflict" }]);
  await assert.rejects(sandbox.dial(80), sdk.ConflictError);
  assert.ok(server.calls.length >= 3 && server.calls.some((call) => call.path.includes("connect")));
  for (const { path, headers } of server.calls) {
    assert.deepEqual([headers["x-proxy-token"], headers.authorization], ["let me in", `Bearer ${KEY}`], path);
    if (!path.includes("connect")) assert.ok(!headers.accept.includes("x/y"), path);
  }
  for (const headers of [{ Authorization: "Basic x" }, { "a b": "c" }, { X: "a\r\nY: b" }, { "": "x" }]) {
    assert.throws(() => new sdk.Client({ apiUrl: server.url, headers }), /headers/);
  }
});

test("no server is said at once and with what to do", async (t) => {
  const { client, server } = await serve(t, { reconnectSeconds: 600 });
  await server.stop();
  await assert.rejects(client.me(), (error) => {
    assert.ok(error instanceof sdk.NetworkError && error instanceof sdk.APIConnectionError);
    assert.match(error.message, /can't connect.*pandastack serve/);
    assert.deepEqual([error.sent, error.timedOut], [false, false]);
    return true;
  });
});

test("a server that is away for a moment is waited for, when it was there before", async (t) => {
  const { client, server } = await serve(t);
  server.on("GET", "/me", [200, { id: "u" }]);
  await client.me();
  await server.stop();
  const waiting = client.me();
  await server.restart();
  assert.equal((await waiting).id, "u");
});

test("what may be repeated is, and what may not is not", async (t) => {
  const { client, sandbox, server } = await serve(t);
  let broken = 0;
  server.on("GET", "/me", () => (broken++ < 2 ? BREAK : [200, { id: "u" }]));
  assert.equal((await client.me()).id, "u");
  server.on("POST", ".*/processes", BREAK);
  await assert.rejects(sandbox.commands.run("x", { background: true }), sdk.NetworkError);
  assert.equal(server.sent("POST", "/processes").length, 1);
});

test("a create that breaks is sent again under the same key", async (t) => {
  const { client, server } = await serve(t);
  let broken = false;
  server.on("POST", "/sandboxes", (call) => (broken ? [201, { ...SANDBOX, ...call.json }] : ((broken = true), BREAK)));
  await client.sandboxes.create({ template: "base" });
  const [first, second] = server.sent("POST", "/sandboxes");
  assert.ok(first.headers["idempotency-key"]);
  assert.equal(first.headers["idempotency-key"], second.headers["idempotency-key"]);
});

test("too many calls in a second are waited for, other limits are not", async (t) => {
  const { client, server } = await serve(t);
  let refused = 0;
  server.on("GET", "/me", () => (refused++ < 2 ? [429, { error: "slower", code: "rate_limited" }, { "retry-after": "0.02" }] : [200, { id: "u" }]));
  assert.equal((await client.me()).id, "u");
  server.on("POST", "/sandboxes", [429, { error: "too many sandboxes", code: "rate_limited" }, { "retry-after": "10" }]);
  await assert.rejects(client.sandboxes.create(), (error) => error instanceof sdk.RateLimitError && error.retryAfter === 10);
  assert.equal(server.sent("POST", "/sandboxes").length, 1);
  server.on("PUT", ".*/fs", [429, { error: "slower", code: "rate_limited" }, { "retry-after": "0.02" }]);
  const stream = new Blob(["x"]).stream();
  await assert.rejects(sdk.Sandbox.fromInfo(SANDBOX, client).filesystem.write("/x", stream), sdk.RateLimitError, "a stream is used up");
});

test("a silent server is given up after timeoutMs", async (t) => {
  const { client, server } = await serve(t, { timeoutMs: 50, reconnectSeconds: 0 });
  server.on("GET", "/me", HANG);
  await assert.rejects(client.me(), (error) => error instanceof sdk.NetworkError && error.timedOut);
});

test("a redirect is not followed, since the key would be", async (t) => {
  const { client, server } = await serve(t);
  server.on("GET", "/me", [301, "", { location: "https://elsewhere.example/v1/me" }]);
  await assert.rejects(client.me(), /redirects to https:\/\/elsewhere\.example.*apiUrl/);
  // A browser says of a redirect that there is one, and nothing else.
  const opaque = Object.defineProperty(new Response(), "status", { value: 0 });
  await assert.rejects(new sdk.Client({ apiUrl: server.url, fetch: async () => opaque }).me(), /redirects.*apiUrl/);
});

// Where the server is

test("the server and the key are found by option, environment, file", async (t) => {
  const home = await folder(t);
  const saved = { ...process.env };
  t.after(() => Object.assign(process.env, saved));
  for (const name of ["PANDASTACK_API", "PANDASTACK_API_URL", "PANDASTACK_API_KEY"]) delete process.env[name];
  process.env.XDG_CONFIG_HOME = home;
  const found = (options) => {
    const { apiUrl, apiKey, previewHost } = new sdk.Client(options);
    return [apiUrl, apiKey, previewHost];
  };
  assert.equal(found()[0], "http://127.0.0.1:8080/v1");
  await import("node:fs").then((fs) => fs.mkdirSync(join(home, "pandastack")));
  await writeFile(join(home, "pandastack", "config.json"), JSON.stringify({ api_url: "http://file:1/", token: "pds_file" }));
  assert.deepEqual(found(), ["http://file:1/v1", "pds_file", "file"]);
  process.env.PANDASTACK_API_URL = "http://second:1";
  assert.deepEqual(found(), ["http://second:1/v1", "pds_file", "second"]);
  process.env.PANDASTACK_API = "https://api.first.example/under/v1/";
  process.env.PANDASTACK_API_KEY = "pds_env";
  assert.deepEqual(found(), ["https://api.first.example/under/v1", "pds_env", "first.example"]);
  assert.deepEqual(found({ apiUrl: "http://[::1]:7", apiKey: "k" }), ["http://[::1]:7/v1", "k", "localhost:7"]);
  await writeFile(join(home, "pandastack", "config.json"), '{"half');
  assert.equal(found()[1], "pds_env");
  for (const apiUrl of ["127.0.0.1:80", "ftp://x", "http://u:p@x", "http://x?a=b", "nonsense"]) assert.throws(() => new sdk.Client({ apiUrl }), /apiUrl/, apiUrl);
  for (const apiKey of ["two words", "pds_ü", "new\nline"]) assert.throws(() => new sdk.Client({ apiUrl: "http://x", apiKey }), /apiKey/, apiKey);
});

// Sandboxes

test("creates take options in both spellings, and snapshots as they come", async (t) => {
  const { client, server } = await serve(t);
  const sandbox = await sdk.Sandbox.create({ template: "code-interpreter", ttlSeconds: 5, memory_mb: 64, metadata: { a_b: "c" } }, client);
  assert.deepEqual(server.sent("POST", "/sandboxes")[0].json, { template: "code-interpreter", ttl_seconds: 5, memory_mb: 64, metadata: { a_b: "c" } });
  assert.deepEqual([sandbox.id, sandbox.template, sandbox.status, sandbox.metadata], ["sb_1", "code-interpreter", "running", { a_b: "c" }]);
  assert.equal(sandbox.createdAt.getTime(), Date.parse("2026-03-01T10:00:00.123Z"));
  await sdk.Sandbox.create({ apiUrl: server.url, apiKey: KEY, fromSnapshot: { id: "sn-1" } });
  assert.deepEqual(server.sent("POST", "/sandboxes")[1].json, { from_snapshot: "sn-1" });
  await sdk.Sandbox.create({}, { apiUrl: server.url, apiKey: KEY });
  assert.deepEqual(server.sent("POST", "/sandboxes")[2].json, { template: "ubuntu-24.04" });
});

test("a sandbox ends with its block, and ending one that is gone is fine", async (t) => {
  const { sandbox, server } = await serve(t);
  await sandbox[Symbol.asyncDispose]();
  assert.equal(server.sent("DELETE", "/sb_1").length, 1);
  server.on("DELETE", "/sandboxes/sb_1", [404, { error: "gone", code: "not_found" }]);
  await sandbox.kill();
});

test("lists come page by page", async (t) => {
  const { client, server } = await serve(t);
  const page = (from, count) => Array.from({ length: count }, (_, i) => ({ ...SANDBOX, id: `sb_${from + i}` }));
  server.on("GET", "/sandboxes", (call) => (call.query.cursor ? [200, page(500, 20)] : [200, page(0, Number(call.query.limit)), { "x-next-cursor": "c" }]));
  assert.equal((await client.sandboxes.list()).length, 520);
  assert.deepEqual((await sdk.Sandbox.list({ limit: 3, metadata: { k: "v" }, apiUrl: server.url, apiKey: KEY })).map((s) => s.id), ["sb_0", "sb_1", "sb_2"]);
  assert.deepEqual(server.calls.at(-1).query, { "metadata.k": "v", limit: "3" });
  await assert.rejects(client.sandboxes.list({ limit: 0 }), /limit/);
});

test("copies: one, or a list of so many", async (t) => {
  const { sandbox, server } = await serve(t);
  server.on("POST", ".*/(fork|fork-tree)", (call) => [201, { parent_id: "sb_1", at: "", children: Array.from({ length: call.json.count ?? 1 }, (_, i) => ({ ...SANDBOX, id: `copy_${i}` })) }]);
  assert.equal((await sandbox.fork({ metadata: { a: "b" } })).id, "copy_0");
  assert.equal((await sandbox.fork()).id, "copy_0");
  assert.deepEqual((await sandbox.fork(2, { reseed: false })).map((s) => s.id), ["copy_0", "copy_1"]);
  assert.deepEqual(server.calls.at(-1).json, { count: 2, reseed: false });
  assert.equal((await sandbox.forkTree()).length, 2);
});

test("explore keeps the best, and ends the others whatever happens", async (t) => {
  const { sandbox, server } = await serve(t);
  server.on("POST", ".*/fork-tree", (call) => [201, { children: Array.from({ length: call.json.count }, (_, i) => ({ ...SANDBOX, id: `b${i}`, metadata: { fork_tree_id: "tree" } })) }]);
  server.on("POST", ".*/sandboxes/(b\\d)/exec", ({ json: { cmd } }) => [200, { stdout: cmd === "good" ? "PASS\n" : "", stderr: "", exit_code: cmd === "bad" ? 1 : 0, duration_ms: 5 }]);
  server.on("POST", ".*/promote", [200, { winner: "b1" }]);
  server.on("DELETE", "/sandboxes/b\\d", [204]);
  const heard = [];
  const found = await sandbox.explore(["bad", "good", { fn: async (branch) => branch.id, label: "code", score: 0.5 }], {
    scoreFn: (branch, outcome) => (outcome.stdoutTail.includes("PASS") ? 1 : 0),
    onOutcome: (outcome) => heard.push(outcome.label),
  });
  assert.deepEqual([found.winner.id, found.winnerOutcome.label, found.treeId, found.reaped.sort(), found.errors], ["b1", "good", "tree", ["b0", "b2"], []]);
  assert.deepEqual(found.outcomes.map((o) => [o.ok, o.exitCode, o.score, o.value]), [[false, 1, undefined, undefined], [true, 0, 1, undefined], [true, undefined, 0.5, "b2"]]);
  assert.deepEqual(heard.sort(), ["bad", "code", "good"]);
  assert.equal((await sandbox.explore(["good", "bad"], { requireSuccess: false, select: "min", scoreFn: (_, o) => o.exitCode })).winner.id, "b0");
  const before = server.sent("DELETE", "").length;
  await assert.rejects(sandbox.explore(["bad"]), (error) => error instanceof sdk.ExploreError && error.exploration.outcomes[0].exitCode === 1);
  await assert.rejects(sandbox.explore(["good"], { scoreFn: () => { throw new Error("mine"); } }), /mine/);
  assert.deepEqual(server.sent("DELETE", "").slice(before).map((c) => c.path), ["/v1/sandboxes/b0", "/v1/sandboxes/b0"]);
  await assert.rejects(sandbox.explore([]), /candidates/);
});

test("preview addresses are made without a call", async (t) => {
  const { client, sandbox } = await serve(t);
  assert.equal(sandbox.previewUrl(80), `http://80-sb_1.localhost:${new URL(client.apiUrl).port}/`);
  const of = (apiUrl, preview_host, options) => new sdk.Sandbox(new sdk.Client({ apiUrl, ...options }), { ...SANDBOX, preview_host });
  assert.equal(of("https://api.p.example").previewUrl(8080), "https://8080-sb_1.p.example/");
  assert.equal(of("https://api.p.example", "of.example:8443").previewUrl(80), "https://80-sb_1.of.example:8443/");
  assert.equal(of("https://p.example", undefined, { previewHost: "q.example" }).previewUrl(80, "http"), "http://80-sb_1.q.example/");
  for (const port of [0, 65536, 1.5, "80"]) assert.throws(() => sandbox.previewUrl(port), RangeError);
});

test("events and logs go on after a broken connection", async (t) => {
  const { client, server, sandbox } = await serve(t);
  const from = [];
  server.on("GET", "(/events|.*/logs)", (call) => {
    from.push(call.headers["last-event-id"]);
    const events = [1, 2, 3].map((seq) => ({ type: "event", seq, id: seq, line: `l${seq}` }));
    return { events: events.slice(Number(call.headers["last-event-id"] ?? 0)) };
  });
  server.cuts.push(2);
  assert.deepEqual((await collect(client.events({ follow: true }))).map((e) => e.id), [1, 2, 3]);
  server.cuts.push(1);
  assert.deepEqual(await collect(sandbox.logs({ follow: true })), ["l1", "l2", "l3"]);
  assert.deepEqual(from, [undefined, "2", undefined, "1"]);
});

// Commands

test("commands", async (t) => {
  const { sandbox, server } = await serve(t);
  server.on("POST", ".*/exec", ({ json }) => [200, { stdout: JSON.stringify(json), stderr: "", exit_code: json.cmd === "false" ? 3 : 0, duration_ms: 2 }]);
  const done = await sandbox.exec(["ls", "-l"], { cwd: "/c", user: 1000, envs: { A: "b" }, stdin: "in" });
  const { execution_id: id, ...sent } = JSON.parse(done.stdout);
  assert.deepEqual(sent, { cmd: ["ls", "-l"], cwd: "/c", user: "1000", envs: { A: "b" }, stdin: "in", timeout_seconds: 60 });
  assert.match(id, /^[0-9a-f-]{36}$/);
  assert.deepEqual([done.exitCode, done.exit_code, done.durationMs, done.duration_ms, done.reason], [0, 0, 2, 2, "exited"]);
  await assert.rejects(sandbox.exec("false", { check: true }), (error) => error instanceof sdk.CommandError && error.exitCode === 3 && /code 3/.test(error.message) && error.stdout !== "");
  server.on("POST", ".*/exec", [504, { error: "timeout: the command did not end", code: "timeout", stdout: "so far", stderr: "e", exit_code: 137, timed_out: true }]);
  await assert.rejects(sandbox.exec("sleep 60"), (error) => error instanceof sdk.SandboxTimeout && error.stdout === "so far" && error.stderr === "e");
  await assert.rejects(sandbox.exec(7), TypeError);
});

test("a command whose connection breaks is come back to, and never started twice", async (t) => {
  const { sandbox, server } = await serve(t);
  let calls = 0;
  server.on("POST", ".*/exec", ({ json }) => (++calls < 3 ? BREAK : [200, { stdout: String(json.attach), stderr: "", exit_code: 0, duration_ms: 1 }]));
  assert.equal((await sandbox.exec("x")).stdout, "true");
  const sent = server.sent("POST", "/exec").map((call) => call.json);
  assert.deepEqual(sent.map((body) => body.attach), [undefined, true, true]);
  assert.equal(new Set(sent.map((body) => body.execution_id)).size, 1);
});

const process1 = (server, events) => {
  server.on("POST", ".*/processes", [201, { pid: 7 }]);
  server.on("GET", ".*/processes/7", [200, { pid: 7, running: true }]);
  server.on("GET", ".*/processes/7/stream", (call) => ({ events: events.map((e, i) => ({ ...e, seq: i + 1 })).filter((e) => e.seq > Number(call.query.after)) }));
};

test("a process is followed over broken connections", async (t) => {
  const { sandbox, server } = await serve(t);
  process1(server, [{ type: "started", pid: 7 }, { type: "stdout", text: "a" }, { type: "stdout", text: "", raw: "/w==" }, { type: "stderr", text: "e" }, { type: "exit", exit_code: 3, reason: "exited" }]);
  server.cuts.push(2, 1);
  const seen = [];
  const process = await sandbox.commands.run("x", { background: true, tag: "t", stdin: true, onStdout: (text) => seen.push(text), check: true });
  assert.deepEqual(server.sent("POST", "/processes")[0].json, { cmd: "x", stdin: true, tag: "t" });
  await assert.rejects(process.wait(), (error) => error instanceof sdk.CommandError && error.exitCode === 3 && error.stdout === "a\ufffd");
  assert.deepEqual(seen, ["a", "\ufffd"]);
  const result = await process.wait({ check: false });
  assert.deepEqual([result.exitCode, result.stdout, result.stderr], [3, "a\ufffd", "e"]);
  const events = await collect(await sandbox.commands.connect(7));
  assert.deepEqual(events.map((e) => [e.type, e.raw && [...e.raw]]), [["started", undefined], ["stdout", undefined], ["stdout", [255]], ["stderr", undefined], ["exit", undefined]]);
});

test("callbacks of the background are called while nobody waits, and what they throw comes out of wait", async (t) => {
  const { sandbox, server } = await serve(t);
  process1(server, [{ type: "stdout", text: "a" }, { type: "stdout", text: "b" }, { type: "exit", exit_code: 0, reason: "exited" }]);
  server.cuts.push(1); // the first connection ends after "a"
  const heard = [];
  let hear;
  const first = new Promise((resolve) => (hear = resolve));
  const process = await sandbox.commands.run("x", { background: true, onStdout: (text) => (heard.push(text), hear()) });
  await first;
  const again = [];
  assert.equal((await process.wait({ onStdout: (text) => again.push(text) })).stdout, "ab");
  assert.deepEqual([heard, again], [["a", "b"], ["a", "b"]]);
  assert.equal((await process.wait()).stdout, "ab");
  assert.deepEqual(heard, ["a", "b"]);

  const failing = await sandbox.commands.run("x", { background: true, onStdout: () => Promise.reject(new Error("mine")) });
  await assert.rejects(failing.wait(), /^Error: mine/);
  await assert.rejects(failing.wait({ onStderr: () => undefined }), /^Error: mine/);
  assert.equal(server.sent("DELETE", "/7").length, 0);

  server.on("GET", ".*/processes/7/stream", HANG);
  const stop = new AbortController();
  const silent = await sandbox.commands.run("x", { background: true, onStdout: () => undefined, signal: stop.signal });
  await assert.rejects(silent.wait({ timeoutSeconds: 0.05 }), sdk.SandboxTimeout);
  stop.abort(new Error("enough"));
  await assert.rejects(silent.wait(), /^Error: enough/);
});

test("waiting for a process ends in time, and the process goes on", async (t) => {
  const { sandbox, server } = await serve(t);
  process1(server, []);
  server.on("GET", ".*/processes/7/stream", HANG);
  const process = await sandbox.commands.connect(7);
  await assert.rejects(process.wait({ timeoutSeconds: 0.05 }), (error) => error instanceof sdk.SandboxTimeout && /goes on/.test(error.message));
  await assert.rejects(process.wait({ signal: AbortSignal.timeout(20) }), { name: "TimeoutError" });
  assert.equal(server.sent("DELETE", "/7").length, 0);
});

test("much input is streamed while output is followed, and a program need not read it", async (t) => {
  const { sandbox, server } = await serve(t);
  process1(server, [{ type: "exit", exit_code: 0, reason: "exited" }]);
  const arrived = [];
  server.on("POST", ".*/stdin", ({ body }) => (arrived.push(body.length), [204]));
  server.on("DELETE", ".*/stdin", [204]);
  async function* pieces() {
    for (let i = 0; i < 10; i++) yield i % 2 ? new Uint8Array(100_000) : "ü".repeat(50_000);
  }
  assert.equal((await sandbox.exec("cat", { stdin: pieces() })).exitCode, 0);
  server.on("POST", ".*/stdin", [409, { error: "it has ended", code: "conflict" }]);
  assert.equal((await sandbox.exec("true", { stdin: new Uint8Array(10) })).exitCode, 0);
  // Input that can't be read is the caller's error, and the program must not wait for the rest of it.
  const broken = new Error("mine");
  let killed;
  const dead = new Promise((resolve) => (killed = resolve));
  server.on("DELETE", ".*/processes/7", () => (killed(), [204]));
  server.on("GET", ".*/processes/7/stream", async () => (await dead, { events: [{ type: "exit", seq: 1, exit_code: 137, reason: "killed" }] }));
  const unreadable = { [Symbol.asyncIterator]: () => ({ next: () => Promise.reject(broken) }) };
  await assert.rejects(sandbox.exec("cat", { stdin: unreadable }), broken);
});

test("the published stream of a command", async (t) => {
  const { sandbox, server } = await serve(t);
  const sse = (text) => [200, text, { "content-type": "text/event-stream" }];
  server.on("POST", ".*/exec/stream", sse('event: stdout\ndata: {"chunk":"a"}\n\nevent: stderr\ndata: {"chunk":"b"}\n\nevent: exit\ndata: {"exit_code":4}\n\n'));
  let seen = "";
  assert.equal(await sandbox.execStream("x", { onStdout: (c) => (seen += c), onStderr: (c) => (seen += c) }), 4);
  assert.equal(seen, "ab");
  server.on("POST", ".*/exec/stream", sse('event: error\ndata: {"error":"timeout: it did not end","code":"timeout"}\n\n'));
  await assert.rejects(sandbox.execStream("x"), sdk.SandboxTimeout);
  server.on("POST", ".*/exec/stream", sse('event: stdout\ndata: {"chunk":"a"}\n\n'));
  await assert.rejects(sandbox.execStream("x"), sdk.NetworkError, "a stream without an exit is no success");
});

// Files

const BYTES = Uint8Array.from({ length: 300_000 }, (_, i) => (i * 7) % 256);

test("files are binary safe in every form", async (t) => {
  const { sandbox, server } = await serve(t);
  const files = new Map();
  server.on("PUT", ".*/fs", ({ query, body }) => (files.set(query.path, body), [200, { path: query.path, bytes: body.length }]));
  server.on("GET", ".*/fs", ({ query }) => [200, files.get(query.path), { "content-type": "application/octet-stream" }]);
  const { filesystem } = sandbox;
  const half = Math.floor(BYTES.length / 2);
  const forms = {
    bytes: BYTES,
    "a view": Uint8Array.from([1, 2, ...BYTES]).subarray(2),
    "an ArrayBuffer": BYTES.buffer,
    "a Blob": new Blob([BYTES]),
    "a stream": new Blob([BYTES]).stream(),
    "an iterable": (async function* () { yield BYTES.subarray(0, half); yield BYTES.subarray(half); })(),
  };
  for (const [form, data] of Object.entries(forms)) {
    assert.equal((await filesystem.write("/f", data)).bytes, BYTES.length, form);
    assert.deepEqual(new Uint8Array(files.get("/f")), BYTES, form);
  }
  assert.deepEqual(await filesystem.readBytes("/f"), BYTES);
  assert.deepEqual(new Uint8Array(await new Response(await filesystem.readStream("/f")).arrayBuffer()), BYTES);
  await assert.rejects(filesystem.read("/f"), /not UTF-8.*readBytes/);
  await filesystem.write("/t", "\ufeffü\r\n\u2028🎉");
  assert.equal(await filesystem.read("/t"), "\ufeffü\r\n\u2028🎉");
  assert.equal(await filesystem.readText("/t"), "\ufeffü\r\n\u2028🎉");
  await assert.rejects(filesystem.write("/f", 7), TypeError);

  const dir = await folder(t);
  await writeFile(join(dir, "in"), BYTES);
  await filesystem.upload(join(dir, "in"), "/up");
  assert.equal(await filesystem.download("/up", join(dir, "out")), BYTES.length);
  assert.deepEqual(new Uint8Array(await readFile(join(dir, "out"))), BYTES);
  await assert.rejects(filesystem.upload(join(dir, "none"), "/up"), { code: "ENOENT" });
  assert.deepEqual((await readdir(dir)).sort(), ["in", "out"]);
});

test("a download that breaks leaves nothing behind", async (t) => {
  const { sandbox, server } = await serve(t);
  server.on("GET", ".*/fs", () => ({ events: [{ type: "a", seq: 1 }, { type: "b", seq: 2 }] }));
  server.cuts.push(1);
  const dir = await folder(t);
  await writeFile(join(dir, "out"), "old");
  await assert.rejects(sandbox.filesystem.download("/f", join(dir, "out")), sdk.NetworkError);
  assert.deepEqual([await readdir(dir), await readFile(join(dir, "out"), "utf8")], [["out"], "old"]);
  server.on("GET", ".*/fs", [404, { error: "none", code: "not_found" }]);
  await assert.rejects(sandbox.filesystem.download("/f", join(dir, "out")), sdk.NotFoundError);
});

test("a stream of a file is read no faster than it is wanted, and can be left", async (t) => {
  const { sandbox, server } = await serve(t);
  server.on("GET", ".*/fs", () => [200, Buffer.alloc(64 << 20), {}]);
  const stream = await sandbox.filesystem.readStream("/f");
  const reader = stream.getReader();
  assert.ok((await reader.read()).value.length > 0);
  await reader.cancel();
  await server.calls.at(-1).gone;
});

test("parts of files", async (t) => {
  const { sandbox, server } = await serve(t);
  server.on("GET", ".*/fs", ({ headers }) => [206, headers.range]);
  const { filesystem } = sandbox;
  for (const [options, range] of [[{ start: 2, end: 5 }, "bytes=2-4"], [{ start: 7 }, "bytes=7-"], [{ end: 3 }, "bytes=0-2"], [{ start: -4 }, "bytes=-4"]]) assert.equal(await filesystem.read("/f", options), range);
  for (const options of [{ start: 5, end: 5 }, { start: -2, end: 4 }, { start: 1.5 }]) await assert.rejects(filesystem.read("/f", options), RangeError);
});

test("names that are not UTF-8 are bytes", async (t) => {
  const { sandbox, server } = await serve(t);
  server.on("GET", ".*/fs/dir", [200, { path: "/d", entries: [{ name: "a\ufffd", raw_name: "Yf8=", mode: "f" }] }]);
  server.on("GET", ".*/fs", ({ target }) => [200, target.split("path=")[1]]);
  const [entry] = await sandbox.filesystem.list("/d");
  assert.equal(entry.path, "/d/a\ufffd");
  assert.equal(await sandbox.filesystem.read(entry.rawPath), "%2f%64%2f%61%ff");
});

test("a walk takes each folder with what is in it", async (t) => {
  const { sandbox, server } = await serve(t);
  const tree = { "/w": [{ name: "a", mode: "d", is_dir: true }, { name: "l", mode: "l", is_dir: true }, { name: "f", mode: "f" }], "/w/a": [{ name: "g", mode: "f" }] };
  server.on("GET", ".*/fs/dir", ({ query }) => [200, { path: query.path, entries: tree[query.path] }]);
  const seen = await collect(sandbox.filesystem.walk("/w"));
  assert.deepEqual(seen.map(({ dir, dirs, files }) => [dir, dirs.map((d) => d.name), files.map((f) => f.path)]), [["/w", ["a"], ["/w/l", "/w/f"]], ["/w/a", [], ["/w/a/g"]]]);
});

test("whether a file is there, and when the sandbox is not", async (t) => {
  const { sandbox, server } = await serve(t);
  server.on("GET", ".*/fs/stat", ({ query }) => (query.path === "/yes" ? [200, { name: "yes", mode: "f" }] : [404, { error: "none", code: "not_found" }]));
  assert.deepEqual([await sandbox.filesystem.exists("/yes"), await sandbox.filesystem.exists("/no")], [true, false]);
  server.on("GET", "/sandboxes/sb_1", [404, { error: "no sandbox", code: "not_found" }]);
  await assert.rejects(sandbox.filesystem.exists("/no"), /no sandbox/);
});

test("a terminal gives its bytes, and takes a size", async (t) => {
  const { sandbox, server } = await serve(t);
  process1(server, [{ type: "started", pid: 7 }, { type: "stdout", text: "ü" }, { type: "stdout", text: "", raw: "/w==" }, { type: "exit", exit_code: 0, reason: "exited" }]);
  server.on("POST", ".*/resize", [204]);
  const terminal = await sandbox.pty.create({ rows: 30 });
  assert.deepEqual(server.sent("POST", "/processes")[0].json, { cmd: ["/bin/bash", "-l"], pty: { rows: 30, cols: 80 } });
  assert.deepEqual((await collect(terminal.output())).map((bytes) => [...bytes]), [[0xc3, 0xbc], [255]]);
  await terminal.resize(40, 100);
  assert.deepEqual(server.sent("POST", "/resize")[0].json, { rows: 40, cols: 100 });
  await assert.rejects(sandbox.pty.connect(7), /no terminal/);
});

test("a terminal's callback is called while nobody waits", async (t) => {
  const { sandbox, server } = await serve(t);
  process1(server, [{ type: "started", pid: 7 }, { type: "stdout", text: "ü" }, { type: "stdout", text: "", raw: "/w==" }, { type: "exit", exit_code: 3, reason: "exited" }]);
  server.on("GET", ".*/processes/7", [200, { pid: 7, running: true, pty: { rows: 24, cols: 80 } }]);
  const pieces = (heard) => (data) => void heard.push(...data);
  const [begun, found, waited] = [[], [], []];
  const terminal = await sandbox.pty.create({ onData: pieces(begun) });
  assert.equal((await terminal.wait()).exitCode, 3);
  assert.deepEqual(begun, [0xc3, 0xbc, 255]);
  const again = await sandbox.pty.connect(7, { onData: pieces(found) });
  await again.wait({ onData: pieces(waited) });
  assert.deepEqual([found, waited], [begun, begun]);
  const failing = await sandbox.pty.create({ onData: () => Promise.reject(new Error("mine")) });
  await assert.rejects(failing.wait(), /^Error: mine/);
});

test("folders are tar streams", async (t) => {
  const { sandbox, server } = await serve(t);
  server.on("GET", ".*/fs/tar", ({ query }) => [200, Buffer.from(`tar of ${query.path}`)]);
  server.on("PUT", ".*/fs/tar", ({ body }) => [200, { path: "/d", files: 1, folders: 0, links: 0, bytes: body.length, left_out: 0 }]);
  assert.equal(await new Response(await sandbox.filesystem.readTar("/d")).text(), "tar of /d");
  assert.equal((await sandbox.filesystem.writeTar("/d", new Blob(["12345"]).stream())).bytes, 5);
});

// Watches and links

const CHANGES = [
  { seq: 1, type: "started", is_dir: false, watch_id: "w" },
  { seq: 2, type: "create", path: "/w/a", is_dir: true },
  { seq: 3, type: "rename", path: "/w/\ufffd", raw_path: "L3cv/w==", from: "/w/b", is_dir: false },
  { seq: 4, type: "ended", reason: "removed", is_dir: false },
];

test("a watch begins when it is made, and goes on over a broken connection", async (t) => {
  const { sandbox, server } = await serve(t);
  server.on("GET", ".*/fs/watch", ({ headers }) => {
    const after = Number(headers["last-event-id"] ?? 0);
    const rest = CHANGES.filter(({ seq }) => seq > after);
    return after === 0 ? { changes: rest.slice(0, 2), broken: true } : { changes: rest };
  });
  const watch = await sandbox.filesystem.watch("/w", { recursive: true });
  assert.equal(server.sent("GET", "/fs/watch").length, 1);
  const told = await collect(watch);
  assert.deepEqual(told.map(({ type, path, from, rawPath, reason }) => [type, path, from, rawPath && [...rawPath], reason]), [
    ["create", "/w/a", undefined, undefined, undefined],
    ["rename", "/w/\ufffd", "/w/b", [47, 119, 47, 255], undefined],
    ["ended", undefined, undefined, undefined, "removed"],
  ]);
  const [first, second] = server.sent("GET", "/fs/watch");
  assert.deepEqual([first.query.path, first.query.recursive, first.query.watch_id], ["/w", "1", second.query.watch_id]);
  server.on("GET", ".*/fs/watch", [404, { error: "there is no /w", code: "not_found" }]);
  await assert.rejects(sandbox.filesystem.watch("/w"), sdk.NotFoundError);
});

test("a watch is ended by its signal, by close, and by leaving the loop", async (t) => {
  const { sandbox, server } = await serve(t);
  const gone = [];
  server.on("GET", ".*/fs/watch", (call) => (gone.push(call.gone), { changes: CHANGES.slice(0, 2), open: true }));
  const stop = new AbortController();
  const aborted = await sandbox.filesystem.watch("/w", { signal: stop.signal });
  await aborted.next();
  stop.abort(new Error("enough"));
  await assert.rejects(aborted.next(), /^Error: enough/);

  const closed = await sandbox.filesystem.watch("/w");
  await closed.next();
  const waiting = closed.next();
  await closed.close();
  assert.deepEqual(await waiting, { done: true, value: undefined });

  for await (const event of await sandbox.filesystem.watch("/w")) {
    assert.equal(event.type, "create");
    break;
  }
  await (await sandbox.filesystem.watch("/w")).close(); // without a step
  await Promise.all(gone); // else the test runs into its deadline
});

test("links to files", async (t) => {
  const { sandbox, server } = await serve(t);
  server.on("POST", ".*/fs/link", [200, { url: "http://x/v1/f/t" }]);
  assert.equal(await sandbox.filesystem.downloadUrl("/a", { ttlSeconds: 5 }), "http://x/v1/f/t");
  assert.equal(await sandbox.filesystem.uploadUrl("/b", { maxBytes: 7 }), "http://x/v1/f/t");
  assert.deepEqual(server.sent("POST", "/fs/link").map((call) => call.json), [
    { path: "/a", method: "GET", ttl_seconds: 5 },
    { path: "/b", method: "PUT", ttl_seconds: 3600, max_bytes: 7 },
  ]);
});

test("closing a connection to a port ends a read that waits; what came before is read", async (t) => {
  const { server, sandbox } = await serve(t);
  let far;
  server.on("GET", ".*/ports/7/connect", { line: (line) => (far = line) });
  const port = await sandbox.dial(7);
  const reader = port.readable.getReader();
  far.frame(2, Buffer.from("hello"));
  assert.equal(new TextDecoder().decode((await reader.read()).value), "hello");
  const waits = reader.read();
  port.close();
  assert.deepEqual(await waits, { done: true, value: undefined });
  await far.closed;
  port.close(); // again, which does nothing

  const other = await sandbox.dial(7);
  await other.readable.cancel();
  await far.closed;
});

test("a message of frames without end or words is no more than its bytes", async (t) => {
  const { server, sandbox } = await serve(t);
  let far;
  server.on("GET", ".*/ports/7/connect", { line: (line) => (far = line) });
  const port = await sandbox.dial(7);
  t.after(() => port.close());
  const reader = port.readable.getReader();
  const count = 50_000;
  const heard = async () => {
    far.frame(9, Buffer.from("there?")); // answered when all before it was heard
    assert.equal((await far.next()).kind, 10);
    garbage();
    return process.memoryUsage().heapUsed;
  };
  const before = await heard();
  far.frame(2, Buffer.from("a"), false);
  far.socket.write(Buffer.alloc(2 * count)); // each two zeros: more of the message, of no bytes
  const grown = (await heard()) - before;
  far.frame(0, Buffer.from("b"), false);
  far.frame(0, Buffer.from("c"));
  assert.equal(new TextDecoder().decode((await reader.read()).value), "abc");
  assert.ok(grown < 40 * count, `${grown} bytes are held for ${count} empty frames`);
});
