// Running cells: the outcome, the callbacks, broken connections, signals.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as sdk from "@pandastack/sdk";
import { BREAK, HANG, serve as serveAny } from "./fake-server.mjs";

const CELL = [
  { type: "stdout", text: "one\n" },
  { type: "result", data: { "image/png": "aGk=" } },
  { type: "stderr", text: "warned\n" },
  { type: "stdout", text: "zwei ü 🎉\n" },
  { type: "result", data: { "text/plain": "'x'", "text/html": "<b>x</b>" }, is_last_expression: true },
];

async function serve(t, options) {
  const made = await serveAny(t, sdk, options);
  made.server.scripts.set("cell", CELL);
  const ctx = await made.sandbox.createCodeContext();
  return { ...made, ctx, runs: () => [...made.server.sent("POST", "/run"), ...made.server.sent("POST", "/run/stream")] };
}

const collect = async (items) => {
  const all = [];
  for await (const item of items) all.push(item);
  return all;
};

test("the outcome of a cell", async (t) => {
  const { ctx, runs } = await serve(t);
  const ex = await ctx.runCode("cell", { timeoutSeconds: 2.5 });
  assert.deepEqual([ex.stdout, ex.stderr, ex.error, ex.end, ex.exitCode, ex.exit_code], ["one\nzwei ü 🎉\n", "warned\n", undefined, "ok", 0, 0]);
  assert.deepEqual([ex.text, ex.html, ex.png, ex.results[1].chart], ["'x'", "<b>x</b>", "aGk=", "aGk="]);
  assert.deepEqual(ex.results.map((r) => r.isLastExpression), [true, false]);
  const [call] = runs();
  assert.equal(call.path, "/v1/sandboxes/sb_1/repl/sessions/ctx_1/run");
  assert.equal(call.json.timeout_ms, 2500);
  assert.match(call.json.execution_id, /^[0-9a-f-]{36}$/);
  assert.equal(ex.executionId, call.json.execution_id);
});

test("what is absent is undefined, and stdout is always a string", async (t) => {
  const { ctx, server } = await serve(t);
  server.scripts.set("expression", [{ type: "result", data: { "text/plain": "2" }, is_last_expression: true }]);
  const ex = await ctx.runCode("expression");
  assert.deepEqual([ex.error, ex.errorName, ex.png, ex.step, ex.results[0].png, ex.results[0].json, ex.results[0].chart], Array(7).fill(undefined));
  assert.equal(ex.error ?? ex.stdout ?? ex.text, "");
  assert.equal(ex.error ?? (ex.stdout || ex.text), "2");
});

test("callbacks come in order, are waited for, and the outcome is the same", async (t) => {
  const { ctx } = await serve(t);
  const seen = [];
  const ex = await ctx.runCode("cell", {
    onStdout: async (text) => {
      await new Promise((resolve) => setImmediate(resolve));
      seen.push(["out", text]);
    },
    onStderr: (text) => seen.push(["err", text]),
    onResult: (result) => seen.push(["result", result.text ?? "figure"]),
  });
  assert.deepEqual(seen, [["out", "one\n"], ["result", "figure"], ["err", "warned\n"], ["out", "zwei ü 🎉\n"], ["result", "'x'"]]);
  const waited = await ctx.runCode("cell");
  assert.deepEqual({ ...ex, executionId: 0 }, { ...waited, executionId: 0 });
});

test("a callback that throws ends the call", async (t) => {
  const { ctx } = await serve(t);
  const mine = new Error("mine");
  await assert.rejects(ctx.runCode("cell", { onStdout: () => { throw mine; } }), mine);
});

test("a stream gives numbered events, and then the outcome", async (t) => {
  const { ctx } = await serve(t);
  const stream = ctx.stream("cell");
  const events = await collect(stream);
  assert.deepEqual(events.map((e) => e.type), ["started", "stdout", "result", "stderr", "stdout", "result", "end"]);
  assert.deepEqual(events.map((e) => e.seq), [1, 2, 3, 4, 5, 6, 7]);
  assert.equal((await stream.wait()).text, "'x'");
});

test("leaving a loop lets go of the connection", async (t) => {
  const { ctx, server } = await serve(t);
  server.scripts.set("much", Array.from({ length: 2000 }, () => ({ type: "stdout", text: "x".repeat(1000) })));
  for await (const event of ctx.stream("much")) if (event.type === "stdout") break;
  await server.sent("POST", "/run/stream")[0].gone;
});

test("attach goes on behind a number", async (t) => {
  const { ctx } = await serve(t);
  const done = await ctx.runCode("cell");
  assert.deepEqual((await collect(ctx.attach(done.executionId, { after: 5 }))).map((e) => e.seq), [6, 7]);
  assert.equal((await ctx.attach(done.executionId).wait()).stdout, done.stdout);
  await assert.rejects(ctx.attach("nobody").wait(), sdk.NotFoundError);
});

test("an answer that never comes is fetched, and the cell runs once", async (t) => {
  const { ctx, server, runs } = await serve(t);
  server.on("POST", ".*/run", (call) => (server.run(call), BREAK));
  assert.equal((await ctx.runCode("cell")).text, "'x'");
  assert.equal(runs().length, 1);
});

for (const cut of [1, 2, 5, 6]) {
  test(`a stream that breaks after ${cut} events goes on behind them`, async (t) => {
    const { ctx, server, runs } = await serve(t);
    server.cuts.push(cut, 1);
    const seen = [];
    const ex = await ctx.runCode("cell", { onStdout: (text) => seen.push(text) });
    assert.deepEqual([seen, ex.text, ex.png, ex.stderr], [["one\n", "zwei ü 🎉\n"], "'x'", "aGk=", "warned\n"]);
    assert.equal(runs().length, 1);
    assert.equal(server.sent("GET", ex.executionId)[0].query.after, String(cut));
  });
}

test("a server that restarts is waited for", async (t) => {
  const { ctx, server, runs } = await serve(t);
  let died;
  const dead = new Promise((resolve) => (died = resolve));
  server.on("POST", ".*/run", (call) => {
    server.run(call);
    died();
    return HANG;
  });
  const running = ctx.runCode("cell");
  await dead;
  await server.stop();
  await server.restart();
  assert.equal((await running).text, "'x'");
  assert.equal(runs().length, 1);
});

test("code that never arrived is sent again under the same id", async (t) => {
  const { ctx, server, runs } = await serve(t);
  server.on("POST", ".*/run", BREAK); // swallowed before anything ran
  assert.equal((await ctx.runCode("cell")).text, "'x'");
  const [first, second] = runs();
  assert.deepEqual(first.json, second.json);
});

test("an execution that is lost after it began is not run again", async (t) => {
  const { ctx, server, runs } = await serve(t);
  server.cuts.push(2);
  server.on("GET", ".*/executions/.*", [404, { error: "no such execution", code: "not_found" }]);
  await assert.rejects(ctx.runCode("cell", { onStdout: () => undefined }), sdk.NotFoundError);
  assert.equal(runs().length, 1);
});

test("a server that is not ready yet is asked again", async (t) => {
  const { ctx, server } = await serve(t);
  let asked = 0;
  server.on("POST", ".*/run", (call) => (server.run(call), BREAK));
  server.on("GET", ".*/executions/([^/]+)", (call, id) => (++asked < 3 ? [503, { error: "starting", code: "no_capacity" }] : server.attach(call, id)));
  assert.equal((await ctx.runCode("cell")).text, "'x'");
  assert.equal(asked, 3);
});

test("a server that stays away is given up", async (t) => {
  const { ctx, server } = await serve(t, { reconnectSeconds: 0.2 });
  await server.stop();
  await assert.rejects(ctx.runCode("cell"), (error) => error instanceof sdk.NetworkError && error.message.includes(String(server.port)));
});

test("an error in the middle of a stream is thrown", async (t) => {
  const { ctx, server } = await serve(t);
  server.on("POST", ".*/run/stream", [200, 'event: error\ndata: {"error":"unauthorized","code":"unauthenticated"}\n\n', { "content-type": "text/event-stream" }]);
  await assert.rejects(ctx.stream("cell").wait(), (error) => error instanceof sdk.AuthError && error.statusCode === 401);
});

test("an id used for other code is a conflict", async (t) => {
  const { ctx } = await serve(t);
  await ctx.runCode("1", { executionId: "mine" });
  await ctx.runCode("1", { executionId: "mine" });
  await assert.rejects(ctx.runCode("2", { executionId: "mine" }), sdk.ConflictError);
});

test("a deadline returns", async (t) => {
  const { ctx, server } = await serve(t);
  server.scripts.set("loop", [{ type: "stdout", text: "so far" }, { type: "end", end: "timeout", error: "the cell did not end within 1 s", exit_code: 1, step: "interrupt" }]);
  for (const options of [{ timeoutSeconds: 1 }, { timeoutSeconds: 1, onStdout: () => undefined }]) {
    const ex = await ctx.runCode("loop", options);
    assert.deepEqual([ex.end, ex.stdout, ex.exitCode, ex.step, ex.stateSurvived], ["timeout", "so far", 1, "interrupt", true]);
    assert.match(ex.error, /1 s/);
  }
});

test("an older server says timeout with a status, and answers with fewer fields", async (t) => {
  const { ctx, server } = await serve(t);
  server.on("POST", ".*/run", [500, { error: "cell timeout after 30s" }]);
  await assert.rejects(ctx.runCode("loop"), sdk.SandboxTimeout);
  server.on("POST", ".*/run", [500, { error: "dial: i/o timeout" }]);
  await assert.rejects(ctx.runCode("loop"), sdk.ServerError);
  server.on("POST", ".*/run", [200, { stdout: "", stderr: "Traceback", exit: 1, results: [{ type: "image/png", data: "aGk=" }] }]);
  const ex = await ctx.runCode("x");
  assert.deepEqual([ex.end, ex.exitCode, ex.png, ex.error, ex.durationMs], ["error", 1, "aGk=", undefined, undefined]);
});

test("a signal ends a call with its own reason, whatever it waits for", async (t) => {
  const { ctx, server, sandbox } = await serve(t);
  const mine = new Error("enough");
  for (const call of [(signal) => ctx.runCode("cell", { signal }), (signal) => ctx.stream("cell", { signal }).wait(), (signal) => sandbox.exec("x", { signal }), (signal) => sandbox.filesystem.read("/x", { signal })]) {
    const controller = new AbortController();
    server.on("POST", ".*/(run|run/stream|exec)", () => (controller.abort(mine), HANG));
    server.on("GET", ".*/fs", () => (controller.abort(mine), HANG));
    await assert.rejects(call(controller.signal), mine);
    await assert.rejects(call(controller.signal), mine, "one that is aborted already");
  }
  await server.calls.at(-1).gone;
});

test("a signal ends the wait for a server that is away", async (t) => {
  const { ctx, server } = await serve(t);
  await server.stop();
  const controller = new AbortController();
  const running = ctx.runCode("cell", { signal: controller.signal });
  setTimeout(() => controller.abort(), 100);
  await assert.rejects(running, { name: "AbortError" });
});

test("no longer than the cell's own deadline is waited for in silence, and then it is attached to", async (t) => {
  const { ctx, server } = await serve(t);
  const waits = [];
  t.mock.method(globalThis, "setTimeout", (run, ms) => {
    waits.push(ms);
    return originals.setTimeout(run, ms > 10_000 ? 20 : ms);
  });
  server.on("POST", ".*/run", (call) => (server.run(call), HANG));
  assert.equal((await ctx.runCode("cell", { timeoutSeconds: 100 })).text, "'x'");
  assert.equal(waits[0], 120_000);
  waits.length = 0;
  assert.equal((await ctx.runCode("cell", { timeoutSeconds: 3600 })).text, "'x'");
  assert.equal(waits[0], 240_000, "a runtime would end it after five minutes");
});
const originals = { setTimeout: globalThis.setTimeout };

test("bad arguments throw before anything is sent", async (t) => {
  const { ctx, runs } = await serve(t);
  for (const [code, options, kind, words] of [
    [undefined, {}, TypeError, /code/],
    ["1", { timeoutSeconds: 0 }, RangeError, /timeoutSeconds/],
    ["1", { timeoutSeconds: Number.NaN }, RangeError, /timeoutSeconds/],
    ["1", { timeoutSeconds: Number.POSITIVE_INFINITY }, RangeError, /timeoutSeconds/],
    ["1", { timeoutSeconds: "5" }, TypeError, /timeoutSeconds/],
    ["1", { executionId: 7 }, TypeError, /executionId/],
  ]) {
    await assert.rejects(ctx.runCode(code, options), (error) => error instanceof kind && words.test(error.message));
  }
  assert.deepEqual(runs(), []);
});

test("events that are none are said to be", async (t) => {
  const { ctx, server } = await serve(t);
  server.on("POST", ".*/run/stream", [200, "data: nonsense\n\n", { "content-type": "text/event-stream" }]);
  await assert.rejects(ctx.stream("1").wait(), (error) => error instanceof sdk.ServerError && /can't be read/.test(error.message));
});

test("of much output the head and the tail are kept, as in the sandbox", async (t) => {
  const { ctx, server } = await serve(t);
  const text = "0123456789abcdef".repeat(4096);
  server.scripts.set("flood", Array.from({ length: 40 }, () => ({ type: "stdout", text })));
  const ex = await ctx.runCode("flood", { onStdout: () => undefined });
  assert.equal(ex.truncated, true);
  assert.equal(ex.stdoutDropped, 40 * 65536 - 1024 * 1024);
  assert.equal(ex.stdout.length, 1024 * 1024 + `\n[… ${ex.stdoutDropped} bytes dropped …]\n`.length);
});

test("a context closes itself, twice is fine, and copies come with warnings", async (t) => {
  const { sandbox, server } = await serve(t);
  const ctx = await sandbox.createCodeContext({ cwd: "/tmp", envs: { A: "b" } });
  assert.deepEqual(server.sent("POST", "/repl/sessions")[1].json, { language: "python", cwd: "/tmp", envs: { A: "b" } });
  await ctx[Symbol.asyncDispose]();
  server.on("DELETE", ".*/sessions/.*", [404, { error: "gone", code: "not_found" }]);
  await ctx.close();
  server.on("POST", ".*/fork", [201, { children: [{ id: "c3", language: "python" }, { id: "c4", language: "python" }], warnings: ["threads do not run"] }]);
  assert.deepEqual((await ctx.fork(2)).map((c) => c.id), ["c3", "c4"]);
  const one = await ctx.fork();
  assert.deepEqual([one.id, one.warnings], ["c3", ["threads do not run"]]);
});
