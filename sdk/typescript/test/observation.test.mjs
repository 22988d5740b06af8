// What adapters of frameworks tell a model of its cell. With the real packages: examples/frameworks-typescript.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import * as sdk from "@pandastack/sdk";
import { pythonTool } from "@pandastack/sdk/ai";
import * as langchain from "@pandastack/sdk/langchain";
import { middle, observe } from "../dist/esm/observation.js";

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="; // one pixel
const ended = (fields) => new sdk.Execution({ results: [], stdout: "", stderr: "", end: "ok", stateSurvived: true, exitCode: 0, truncated: false, stdoutDropped: 0, stderrDropped: 0, resultsDropped: 0, ...fields });
const shown = (data, last = false) => new sdk.Result(data, last);
const session = (outcome) => ({ calls: [], interrupted: 0, async runCode(code, options) { this.calls.push([code, options]); return outcome(options); }, async interrupt() { this.interrupted++; } });

test("output, values and figures, the value of the last line last", () => {
  const table = { "text/plain": "   n\n0  1", "text/html": "<table>1</table>" };
  const { text, figures, html, end } = observe(ended({
    stdout: "hello\n",
    stderr: "careful\n",
    results: [shown(table, true), shown({ "image/png": `${PNG}\n` }), shown({ "image/svg+xml": "<svg/>" }), shown({ "image/png": "é" }), shown({ "x/y": "1" })],
  }));
  assert.equal(text, "hello\n[stderr]\ncareful\n[figure 1: PNG, 1×1 pixels]\n[figure 2: SVG]\n[a figure that can't be shown: it is not base64]\n[result]\na value of the types x/y, which has no text\n[result]\n   n\n0  1");
  assert.deepEqual(figures, [{ mime: "image/png", base64: PNG }, { mime: "image/svg+xml", base64: btoa("<svg/>") }]);
  assert.deepEqual([html, end], [["<table>1</table>"], "ok"]);
  assert.equal(observe(ended({ results: [shown({ "text/plain": "2" }, true)] })).text, "2");
  assert.match(observe(ended({ results: Array.from({ length: 11 }, () => shown({ "image/png": PNG })) })).text, /\[figure 8: .*\n\[3 more figures\]$/);
});

test("ends that a model must know of", () => {
  const kept = "Variables, imports and functions are still there.";
  const lost = "All variables, imports and functions are lost; files are still there. Import and load again what you need.";
  const words = (fields, deadline) => observe(ended(fields), deadline).text;
  assert.equal(words({}), "The cell ran and printed nothing. To see a value, print it or put it on the last line.");
  assert.equal(words({ end: "error", error: "Traceback\nKeyError: 'x'" }), "[error]\nTraceback\nKeyError: 'x'");
  assert.equal(words({ end: "timeout", stdout: "a" }, 2.5), `a\n[deadline] The cell was interrupted at its deadline of 2.5 seconds. What it printed until then is above. ${kept} Make it do less at a time.`);
  assert.equal(words({ end: "timeout", stateSurvived: false }), `[deadline] The cell did not react to an interrupt and was ended after its deadline. ${lost} Make it do less at a time.`);
  assert.equal(words({ end: "oom", stateSurvived: false }), `[out of memory] The cell used more memory than there is, and its interpreter was ended. ${lost} Work on less at a time.`);
  assert.equal(words({ end: "kernel_died", stateSurvived: false }), `[interpreter died] The interpreter ended while the cell ran. ${lost}`);
  assert.equal(words({ end: "interrupted" }), `[interrupted] The cell was interrupted. ${kept}`);
  assert.equal(words({ stdout: "x", truncated: true, outputPath: "/w/out", resultsDropped: 2 }), "x\n[2 results were left out]\n[the whole output is in /w/out of the sandbox]");
});

test("long text is cut in the middle, between letters, with a count of what is missing", () => {
  const long = `${"ü".repeat(60)}\n[... 1000 bytes left out; all of it is in /w/ö ...]\n${"ü".repeat(60)}`;
  const cut = middle(long, 101);
  assert.match(cut, /^ü{10}\n\[\.\.\. \d+ bytes left out \.\.\.\]\nü{40}$/);
  const bytes = new TextEncoder().encode(long).length;
  const line = "\n[... 1000 bytes left out; all of it is in /w/ö ...]\n".length;
  assert.equal(Number(/(\d+) bytes left out \./.exec(cut)[1]), bytes - 100 + 1000 - line);
  assert.equal(middle("ü".repeat(50), 100), "ü".repeat(50));
  assert.ok(observe(ended({ stdout: "x".repeat(1 << 20) })).text.length < 31_000);
});

test("no output stops the program", () => {
  const program = `import { observe } from ${JSON.stringify(new URL("../dist/esm/observation.js", import.meta.url).href)};
    const stdout = (await import("node:fs")).readFileSync(0, "utf8");
    console.log(observe({ results: [], stdout, stderr: "", end: "ok", stateSurvived: true, truncated: false, resultsDropped: 0 }).text.length);`;
  for (const stdout of [`x${"\n".repeat(1_000_000)}x`, "[... 1 bytes left out".repeat(50_000)]) {
    // An expression that looks at the same text again and again takes minutes, and nothing in the same process ends it.
    const { status, stdout: length, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program], { input: stdout, encoding: "utf8", timeout: 60_000 });
    assert.equal(status, 0, stderr || "it was still busy after a minute");
    assert.ok(Number(length) > 20_000 && Number(length) < 31_000, length);
  }
});

test("who gives up stops no other cell, and what was given up before it began stops none", async () => {
  const waiting = [];
  const here = session(({ signal }) => new Promise((_, reject) => {
    waiting.push(signal);
    signal.addEventListener("abort", () => reject(signal.reason), { once: true });
  }));
  const tool = pythonTool(here);
  const [one, two] = [new AbortController(), new AbortController()];
  const first = tool.execute({ code: "first" }, { abortSignal: one.signal });
  const second = tool.execute({ code: "second" }, { abortSignal: two.signal });
  two.abort();
  await assert.rejects(second, { name: "AbortError" });
  await assert.rejects(tool.execute({ code: "third" }, { abortSignal: AbortSignal.abort() }), { name: "AbortError" });
  assert.deepEqual([waiting.length, here.interrupted], [1, 0], "the server keeps for a while what it was asked for");
  one.abort();
  await assert.rejects(first, { name: "AbortError" });
  assert.equal(here.interrupted, 1);
  const three = new AbortController();
  const next = tool.execute({ code: "next" }, { abortSignal: three.signal });
  while (waiting.length < 2) await new Promise(setImmediate);
  three.abort();
  await assert.rejects(next, { name: "AbortError" });
});

test("the tool of the AI SDK gives all to the program and text to the model", async () => {
  const heard = [];
  const here = session(() => ended({ stdout: "hi", results: [shown({ "image/png": PNG })] }));
  const tool = pythonTool(here, { timeoutSeconds: 5, onFigure: (figure) => void heard.push(figure.mime) });
  const { signal } = new AbortController();
  const output = await tool.execute({ code: "1" }, { abortSignal: signal });
  assert.deepEqual(here.calls, [["1", { timeoutSeconds: 5, signal }]]);
  assert.deepEqual([output.text, output.end, output.figures, heard], ["hi\n[figure 1: PNG, 1×1 pixels]", "ok", [{ mime: "image/png", base64: PNG }], ["image/png"]]);
  assert.deepEqual(tool.toModelOutput({ output }), { type: "text", value: output.text });
});

test("the AI SDK's models are shown figures where that is asked for, and hear of arguments that don't fit", async () => {
  const here = session(() => ended({ results: [shown({ "image/png": PNG }), shown({ "image/svg+xml": "<svg/>" })] }));
  const tool = pythonTool(here, { showFigures: true });
  assert.match(tool.description, /you are shown them/);
  const output = await tool.execute({ code: "1" }, {});
  assert.deepEqual(tool.toModelOutput({ output }), { type: "content", value: [{ type: "text", text: output.text }, { type: "file", mediaType: "image/png", data: { type: "data", data: PNG } }] });
  assert.throws(() => tool.toModelOutput(output), /is for ai 7/, "as ai 5 calls it");
  const { validate, jsonSchema } = tool.inputSchema["~standard"];
  assert.deepEqual([validate({ code: "1", more: 2 }), jsonSchema.input().required], [{ value: { code: "1" } }, ["code"]]);
  for (const given of [{}, null, { code: 1 }]) assert.match(validate(given).issues[0].message, /an object with one string/);
});

test("LangChain's tool gives text as content and figures as its artifact", async () => {
  const here = session(() => ended({ stdout: "hi", results: [shown({ "image/png": PNG }), shown({ "text/plain": "1", "text/html": "<b>1</b>" }, true)] }));
  const tool = langchain.pythonTool(here, { name: "python", timeoutSeconds: 5 });
  const { signal } = new AbortController();
  const message = await tool.invoke({ type: "tool_call", id: "c1", name: "python", args: { code: "1" } }, { signal });
  const text = "hi\n[figure 1: PNG, 1×1 pixels]\n[result]\n1";
  assert.deepEqual([message.content, message.tool_call_id, tool.name], [text, "c1", "python"]);
  assert.deepEqual(message.artifact, { figures: [{ type: "image", mimeType: "image/png", data: PNG }], html: ["<b>1</b>"], end: "ok" });
  assert.equal(here.calls[0][1].timeoutSeconds, 5);
  assert.ok(here.calls[0][1].signal instanceof AbortSignal);
  assert.equal(await tool.invoke({ code: "1" }), text, "without a call's id there is no message");
  await assert.rejects(tool.invoke({ cod: "1" }), /schema/);
  const human = langchain.figuresMessage([message, message]);
  assert.deepEqual(human.content.map(({ type }) => type), ["text", "image_url", "image_url"]);
  assert.equal(human.content[1].image_url.url, `data:image/png;base64,${PNG}`);
  assert.equal(langchain.figuresMessage([message, human]), undefined, "they were shown");
  assert.equal(langchain.figuresMessage([]), undefined);
});

test("a sandbox that has ended, a broken connection and an abort", async () => {
  const failing = (error) => pythonTool(session(() => { throw error; }));
  const run = async (tool, options = {}) => (await tool.execute({ code: "1" }, options)).text;
  assert.match(await run(failing(new sdk.NotFoundError("no sandbox"))), /^\[error\]\nThe code did not run: its sandbox has ended.*Don't try again/);
  assert.match(await run(failing(new sdk.NetworkError("it broke"))), /Whether the code ran is not known/);
  assert.match(await run(failing(new sdk.NetworkError("refused", { sent: false }))), /^\[error\]\nThe code did not run: refused/);
  await assert.rejects(run(failing(new RangeError("of ours"))), RangeError);
  const aborted = new AbortController();
  const here = session(({ signal }) => { aborted.abort(new Error("enough")); throw signal.reason; });
  await assert.rejects(run(pythonTool(here), { abortSignal: aborted.signal }), /enough/);
  assert.equal(here.interrupted, 1, "nobody waits for it");
  assert.throws(() => pythonTool({}), /must be a Sandbox or a CodeContext/);
  assert.throws(() => pythonTool(here, { timeoutSeconds: 0 }), RangeError);
});
