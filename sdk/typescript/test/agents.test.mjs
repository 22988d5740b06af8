// Agents: what a run is started with, and how it is followed. What it does is the server's, and tested there.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import * as sdk from "@pandastack/sdk";
import { KEY, serve as serveAny } from "./fake-server.mjs";

const RUN = { id: "ru_1", task: "add", status: "running", model: "openai:m", turns: 0, cells: 0 };
const ENDED = { ...RUN, status: "ended", reason: "answer", answer: "3", turns: 2, cells: 1 };

async function serve(t, options = {}) {
  const { server } = await serveAny(t, sdk);
  return { server, agent: new sdk.Agent("openai:m", { apiUrl: server.url, apiKey: KEY, ...options }) };
}

// Events that say themselves what they are, as a run's do.
const stream = (...events) => ({ events: events.map((whole) => ({ type: whole.type, seq: whole.seq, whole })) });

test("a run begins with what was asked for", async (t) => {
  const { server, agent } = await serve(t, { modelKey: "mk", limits: { maxTurns: 3, maxCostUsd: 0.5 }, price: { input: 1, output: 2, cacheRead: 0.1 }, keep: "keep" });
  server.on("POST", "/agents", (call) => [201, { ...RUN, task: call.json.task }]);
  const dir = mkdtempSync(join(tmpdir(), "pandastack-sdk-"));
  t.after(() => rmSync(dir, { recursive: true }));
  writeFileSync(join(dir, "sales.csv"), Uint8Array.of(0, 255, 10));
  const run = await agent.start("add", { files: [join(dir, "sales.csv")], metadata: { a: "b" } });
  assert.deepEqual([run.id, run.info.task, run.answer, run.reason], ["ru_1", "add", undefined, undefined]);
  await agent.start("again", { files: { "a.txt": "ü", "b.bin": Uint8Array.of(1) }, sandboxId: "sb_1" });
  const [one, two] = server.sent("POST", "/agents");
  assert.equal(one.headers["x-model-key"], "mk");
  assert.deepEqual(one.json, { task: "add", model: "openai:m", keep: "keep", files: [{ path: "sales.csv", content: "AP8K" }], limits: { max_turns: 3, max_cost_usd: 0.5 }, price: { input: 1, output: 2, cache_read: 0.1 }, metadata: { a: "b" } });
  assert.deepEqual([two.json.sandbox_id, two.json.keep, two.json.files], ["sb_1", undefined, [{ path: "a.txt", content: "w7w=" }, { path: "b.bin", content: "AQ==" }]]);
  await assert.rejects(agent.start(7), TypeError);
  await assert.rejects(agent.start("x", { files: "sales.csv" }), /array of paths/);
});

test("a run is followed to its end, over a server that goes away in between", async (t) => {
  const { server, agent } = await serve(t);
  server.on("GET", "/agents/ru_1", [200, RUN]);
  const parts = [
    stream({ type: "started", seq: 1 }, { type: "asked", seq: 2 }), // which then ends, as when the server stops
    stream({ type: "ended", seq: 3, run: ENDED }, { type: "never read", seq: 4 }),
  ];
  const wanted = [];
  server.on("GET", "/agents/ru_1/events", (call) => {
    wanted.push([call.query.after, call.headers["last-event-id"]]);
    return parts.shift();
  });
  const run = await agent.get("ru_1");
  const seen = [];
  assert.equal(await run.wait({ onEvent: (each) => seen.push(each) }), "3");
  assert.deepEqual([run.reason, run.info.cells], ["answer", 1]);
  assert.deepEqual(wanted, [["0", undefined], ["0", "2"]]);
  assert.equal(seen.length, 3);
});

test("a run goes on another way", async (t) => {
  const { server, agent } = await serve(t);
  server.on("GET", "/agents/ru_1", [200, ENDED]);
  server.on("POST", "/agents", [201, { ...RUN, id: "ru_2", fork_of: "ru_1", fork_at: 2 }]);
  server.on("GET", "/agents/ru_2/events", () => stream({ type: "ended", seq: 1, run: { ...ENDED, id: "ru_2", fork_of: "ru_1", fork_at: 2, answer: "4" } }));
  const seen = [];
  const other = await (await agent.get("ru_1")).fork({ at: 2, task: "use medians", modelKey: "mk", limits: { maxTurns: 9 }, onEvent: (each) => seen.push(each.type) });
  assert.deepEqual([other.answer, other.info.fork_of, other.info.fork_at, seen], ["4", "ru_1", 2, ["ended"]]);
  const [call] = server.sent("POST", "/agents");
  assert.equal(call.headers["x-model-key"], "mk");
  assert.deepEqual(call.json, { fork: { of: "ru_1", at: 2, task: "use medians" }, limits: { max_turns: 9 } });
});

test("what is done again of a run, or follows it, needs the functions that its code calls", async (t) => {
  const { server, agent } = await serve(t);
  server.on("GET", "/agents/ru_1", [200, { ...ENDED, functions: ["pay", "shop.find"] }]);
  const run = await agent.get("ru_1");
  for (const again of [() => run.fork({ at: 1 }), () => run.replay(), () => agent.start("more", { follows: "ru_1" })]) {
    await assert.rejects(again, (error) => error instanceof TypeError && /ru_1 calls functions of a program that are not here: pay, shop.find\. Give them: new Agent/.test(error.message));
  }
  assert.equal(server.sent("POST", "/agents").length, 0);
});

test("the functions of an agent are called by its run, by what is done again of it, and by a run of a program before", async (t) => {
  const pay = sdk.tool({ name: "pay", execute: () => "paid" });
  const { server, agent } = await serve(t, { tools: [pay] });
  const lines = [];
  server.on("GET", "/agents/(ru_\\d)/connect", (call, id) => ({
    line: (line) => {
      lines.push(id);
      line.send({ type: "connected", call_id: "" });
      line.send({ type: "tool_call", call_id: id, tool: "pay", arguments: {} });
      void line.next().then(({ json }) => {
        lines.push(json.result);
        line.end(1008, "the agent's run has ended");
      });
    },
  }));
  const functions = ["pay"];
  server.on("POST", "/agents", (call) => [201, { ...RUN, id: call.json.fork ? "ru_2" : call.json.replay_of ? "ru_3" : "ru_4", functions }]);
  server.on("GET", "/agents/(ru_\\d)/events", (call, id) => stream({ type: "ended", seq: 1, run: { ...ENDED, id, functions } }));
  server.on("GET", "/agents/ru_1", [200, { ...RUN, functions }]);
  const run = await agent.get("ru_1"); // which goes on; the program that began it is gone
  await run.fork({ at: 1 });
  await run.replay();
  await agent.run("more", { follows: "ru_1" });
  while (lines.length < 8) await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(lines.filter((said) => said !== "paid").sort(), ["ru_1", "ru_2", "ru_3", "ru_4"]);
  assert.equal(server.sent("POST", "/agents").at(-1).json.tools.functions[0].name, "pay");
});

test("a run that calls this program's functions already is not connected to again", async (t) => {
  const { server, agent } = await serve(t, { tools: [sdk.tool({ name: "pay", execute: () => "paid" })] });
  let end;
  server.on("GET", "/agents/ru_1/connect", { line: (line) => (line.send({ type: "connected", call_id: "" }), (end = () => line.end(1008, "over"))) });
  server.on("POST", "/agents", [201, { ...RUN, functions: ["pay"] }]);
  server.on("GET", "/agents/ru_1", [200, { ...RUN, functions: ["pay"] }]);
  server.on("GET", "/agents/ru_9", [200, { ...RUN, id: "ru_9", functions: ["other"] }]);
  await agent.start("add");
  await agent.get("ru_1");
  await agent.get("ru_9"); // whose functions are another program's
  assert.deepEqual(server.calls.filter(({ path }) => path.endsWith("/connect")).length, 1);
  end();
});

test("other verbs of a run", async (t) => {
  const { server, agent } = await serve(t);
  server.on("GET", "/agents", [200, { runs: [ENDED, RUN] }]);
  server.on("GET", "/agents/ru_1", [200, RUN]);
  server.on("GET", "/agents/ru_1/events", [200, { events: [{ type: "started", seq: 1 }] }]);
  server.on("GET", "/agents/ru_1/figures/1-1-1.png", [200, Buffer.from([137, 80]), { "content-type": "image/png" }]);
  server.on("POST", "/agents/ru_1/cancel", [200, { ...ENDED, reason: "cancelled", answer: undefined }]);
  server.on("DELETE", "/agents/ru_1", [204]);
  assert.deepEqual((await agent.runs({ limit: 2 })).map((run) => run.answer), ["3", undefined]);
  const run = await agent.get("ru_1");
  assert.deepEqual(await run.transcript(), [{ type: "started", seq: 1 }]);
  assert.deepEqual([...(await run.figure("1-1-1.png"))], [137, 80]);
  await run.cancel();
  assert.equal(run.reason, "cancelled");
  await run.delete();
  assert.equal(server.sent("DELETE", "/agents/ru_1").length, 1);
});
