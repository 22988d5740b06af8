// The TypeScript SDK behind the conformance programme's operations: see sdk_python.py. In Node, Bun and Deno this is a program
// that reads lines; a browser imports it from page.html.
import * as sdk from "../../sdk/typescript/dist/esm/index.js";

const snake = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
// The arguments of an operation as options of the SDK. What is in metadata and envs keeps its names.
const options = (args) => Object.fromEntries(Object.entries(args).map(([name, value]) => [camel(name), value]));
const toBase64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

// What the SDK gave, as JSON in the names of the API.
function plain(value) {
  if (value instanceof sdk.Execution || value instanceof sdk.ExecResult) {
    const { results, ...fields } = value;
    const named = Object.fromEntries(Object.entries(fields).map(([name, field]) => [snake(name), field]));
    if (results === undefined) return named;
    const metas = results.map((r) => ({ is_last_expression: r.isLastExpression, metadata: r.metadata }));
    return { ...named, results: results.map((r) => r.data), results_meta: metas };
  }
  if (value instanceof sdk.Sandbox) return value.info;
  if (value instanceof sdk.CodeContext) return { id: value.id, language: value.language, warnings: value.warnings };
  if (value instanceof sdk.AgentRun) return value.info;
  if (value instanceof sdk.Process) return { pid: value.pid };
  if (value instanceof Uint8Array) return toBase64(value);
  if (Array.isArray(value)) return value.map(plain);
  return value ?? null;
}

function event({ type, seq, result, execution, exit, ...rest }) {
  const named = Object.fromEntries(Object.entries(rest).map(([name, field]) => [snake(name), plain(field)]));
  const shown = result && { data: result.data, is_last_expression: result.isLastExpression, metadata: result.metadata };
  return { type, seq, ...named, ...shown, ...(execution && plain(execution)), ...(exit && plain(exit)) };
}

async function collected(items, read = (item) => item, count = Number.POSITIVE_INFINITY) {
  const all = [];
  for await (const item of items) {
    all.push(read(item));
    if (all.length >= count) break;
  }
  return all;
}

// So many changes, the first of which may be one that is made here.
async function watched(files, { path, write, count, ...o }) {
  const watch = await files.watch(path, o);
  if (write !== undefined) await files.write(write, "x");
  return collected(watch, ({ seq, ...event }) => event, count);
}

const KINDS = [
  ["AuthError", "auth"], ["NotFoundError", "not_found"], ["ConflictError", "conflict"], ["RateLimitError", "rate_limited"],
  ["BadRequestError", "bad_request"], ["CapacityError", "capacity"], ["ServerError", "server"], ["SandboxTimeout", "timeout"],
  ["CommandError", "command"], ["NetworkError", "connection"], ["ExploreError", "explore"],
];

function failure(error) {
  const [, kind] = KINDS.find(([name]) => error.constructor === sdk[name]);
  const { message, statusCode, code, hint, field, requestId, retryAfter, stdout, stderr, exitCode } = error;
  return { kind, message, status_code: statusCode, code, hint, field, request_id: requestId, retry_after: retryAfter, stdout, stderr, exit_code: exitCode };
}

async function followed(run, { hear, ...args }) {
  const heard = [];
  const callbacks = Object.fromEntries(hear.map((name) => [camel(`on_${name}`), (x) => heard.push([name, typeof x === "string" ? x : x.data])]));
  return { value: plain(await run({ ...options(args), ...callbacks })), heard };
}

async function explored(sandbox, { candidates, ...args }) {
  const found = await sandbox.explore(candidates.map(options), options(args));
  const outcomes = found.outcomes.map(({ sandbox: _, filesChanged, ...o }) => ({ ...Object.fromEntries(Object.entries(o).map(([name, value]) => [snake(name), value])), files: filesChanged }));
  return { winner: found.winner.id, index: found.winnerOutcome.index, tree_id: found.treeId, outcomes, reaped: found.reaped, reap_failures: found.reapFailures, errors: found.errors };
}

// A folder is made here, goes in, and comes out into another.
async function copiedDir(sandbox, { path, tree }) {
  const fs = process.getBuiltinModule("node:fs");
  const here = fs.mkdtempSync(`${process.getBuiltinModule("node:os").tmpdir()}/conformance-`);
  try {
    for (const [name, { link, text, mode = "644", mtime = 0 }] of Object.entries(tree)) {
      const at = `${here}/in/${name}`;
      fs.mkdirSync(at.slice(0, at.lastIndexOf("/")), { recursive: true });
      if (link !== undefined) fs.symlinkSync(link, at);
      else {
        fs.writeFileSync(at, text);
        fs.chmodSync(at, Number.parseInt(mode, 8));
        fs.utimesSync(at, mtime, mtime);
      }
    }
    const sent = await sandbox.filesystem.uploadDir(`${here}/in`, path);
    const got = await sandbox.filesystem.downloadDir(path, `${here}/out`);
    return { sent: snaked(sent), got: snaked(got), tree: seenTree(fs, `${here}/out`, "") };
  } finally {
    fs.rmSync(here, { recursive: true });
  }
}

// Out into a file here, and in again; in a browser as a stream.
async function copiedSnapshot(snapshots, { id, ...rest }) {
  const fs = globalThis.process?.getBuiltinModule("node:fs");
  if (fs === undefined) return snapshots.importArchive(await snapshots.readArchive(id), options(rest));
  const here = fs.mkdtempSync(`${process.getBuiltinModule("node:os").tmpdir()}/conformance-`);
  try {
    const size = await snapshots.exportArchive(id, `${here}/archive`);
    if (size !== fs.statSync(`${here}/archive`).size) throw new Error(`${size} bytes`);
    return await snapshots.importArchive(`${here}/archive`, options(rest));
  } finally {
    fs.rmSync(here, { recursive: true });
  }
}

function seenTree(fs, folder, above) {
  const tree = {};
  for (const entry of fs.readdirSync(`${folder}/${above}`, { withFileTypes: true })) {
    const name = above + entry.name;
    if (entry.isSymbolicLink()) tree[name] = { link: fs.readlinkSync(`${folder}/${name}`) };
    else if (entry.isDirectory()) Object.assign(tree, seenTree(fs, folder, `${name}/`));
    else {
      const stat = fs.statSync(`${folder}/${name}`);
      tree[name] = { text: fs.readFileSync(`${folder}/${name}`, "utf8"), mode: (stat.mode & 0o777).toString(8), mtime: Math.floor(stat.mtimeMs / 1000) };
    }
  }
  return tree;
}

const snaked = (object) => Object.fromEntries(Object.entries(object).map(([name, value]) => [snake(name), value]));

// Tools as they travel become those that the SDK takes.
function withTools({ tools, ...rest }) {
  if (tools === undefined) return rest;
  const { http = {}, mcp = {}, use = [], policy } = tools;
  const headersOf = (headers) => headers && Object.fromEntries(Object.entries(headers).map(([name, header]) => [name, header.value ?? header]));
  const services = Object.entries(http).map(([name, { openapi, headers, ...o }]) => new sdk.OpenAPI(name, { ...options(o), document: openapi, headers: headersOf(headers) }));
  const servers = Object.entries(mcp).map(([name, { url, headers, ...o }]) => new sdk.MCPServer(name, url, { ...o, headers: headersOf(headers) }));
  return { ...rest, tools: [...services, ...servers, ...use], toolPolicy: policy };
}

const served = new Map(); // sandboxes whose functions are here

// Gives a sandbox functions of this program.
async function serveTools(sandbox, policy) {
  const numbers = { type: "object", properties: { a: { type: "number" }, b: { type: "number" } }, required: ["a", "b"] };
  const add = sdk.tool({ name: "add", description: "Add.", parameters: numbers, risky: true, execute: ({ a, b }) => ({ sum: a + b }) });
  const words = { type: "object", properties: { why: { type: "string" } }, required: ["why"] };
  const unfit = () => Promise.reject(Object.assign(new Error("it does not fit"), { name: "Unfit", kind: "unfit" }));
  served.set(sandbox.id, sandbox);
  const told = await sandbox.tools.set([add, { ns: [sdk.tool({ name: "fail", parameters: words, execute: unfit })] }], { policy });
  return told.map(({ name, source, risky }) => ({ name, source, risky }));
}

// A run whose code calls a function of this program, its fork, and the fork for which the function is missing.
async function functionsOfAgents(agent, { task, options: given }) {
  const calls = [];
  const parameters = { type: "object", properties: { a: { type: "number" }, b: { type: "number" } }, required: ["a", "b"] };
  const add = sdk.tool({ name: "add", parameters, execute: ({ a, b }) => ({ sum: calls.push([a, b]) && a + b }) });
  const owner = agent({ ...options(given), tools: [add] });
  const run = await owner.run(task);
  const again = await (await owner.get(run.id)).fork({ at: 2, ...options(given) });
  const { forked } = (await again.transcript()).find(({ type }) => type === "forked");
  const other = await agent().get(run.id);
  const lacking = await other.fork({ at: 2, ...options(given) }).then(() => false, (error) => error instanceof TypeError && error.message.includes(": add"));
  return { answer: run.answer, again: again.answer, differ: forked.differ ?? [], calls, lacking };
}

// Runs a cell that makes a call about which somebody is asked, and is that somebody.
async function decided(client, sandbox, { code, approve, reason }) {
  const cell = sandbox.runCode(code);
  let waiting = [];
  while (waiting.length === 0) waiting = await sandbox.tools.approvals();
  const approval = await client.approvals.decide(waiting[0].id, approve, { reason });
  return { waiting: waiting[0], approval, stdout: (await cell).stdout };
}

export function operations(config = {}) {
  const agent = (options = {}) => new sdk.Agent({ ...config, ...options });
  const limited = ({ limits, price, ...o }) => options({ ...withTools(o), ...(limits && { limits: options(limits) }), ...(price && { price: options(price) }) });
  const ofRun = (call) => async ({ id, ...args }) => call(await agent().get(id), options(args));
  const client = new sdk.Client({ reconnectSeconds: 20, ...config });
  const of = (id) => new sdk.Sandbox(client, { id });
  const ctx = ({ sandbox, context }) => new sdk.CodeContext(client, sandbox, context);
  const process = ({ sandbox, pid }) => of(sandbox).commands.connect(pid);
  const withoutHandle = ({ sandbox: _, context: __, ...rest }) => rest;
  const less = (args, ...names) => options(Object.fromEntries(Object.entries(args).filter(([name]) => !names.includes(name))));
  const ofSandbox = (call) => ({ sandbox, ...args }) => call(of(sandbox), options(args), args);
  const forked = (thing, { count, ...rest }) => (count === undefined ? thing.fork(rest) : thing.fork(count, rest));
  return {
    version: () => client.version(),
    me: () => client.me(),
    events: (a) => collected(client.events(options(a))),
    "tokens.list": (a) => client.tokens.list(options(a)),
    "tokens.create": ({ expires_at, ...a }) => client.tokens.create({ ...options(a), ...(expires_at && { expiresAt: new Date(expires_at) }) }),
    "tokens.revoke": ({ prefix }) => client.tokens.revoke(prefix),
    "templates.list": () => client.templates.list(),
    "templates.get": ({ name }) => client.templates.get(name),
    "snapshots.list": (a) => client.snapshots.list(options(a)),
    "snapshots.get": ({ id }) => client.snapshots.get(id),
    "snapshots.update": ({ id, ...a }) => client.snapshots.update(id, options(a)),
    "snapshots.copied": (a) => copiedSnapshot(client.snapshots, a),
    "snapshots.delete": ({ id }) => client.snapshots.delete(id),
    "sandboxes.create": (a) => client.sandboxes.create(options(withTools(a))),
    "sandboxes.get": ({ id }) => client.sandboxes.get(id),
    "sandboxes.list": (a) => client.sandboxes.list(options(a)),
    "sandbox.kill": ofSandbox((s) => s.kill()),
    "sandbox.lifecycle": ofSandbox((s) => s.lifecycle()),
    "sandbox.set_lifecycle": ofSandbox((s, o) => s.setLifecycle(o)),
    "sandbox.metrics": ofSandbox((s) => s.metrics()),
    "sandbox.pause": ofSandbox((s) => s.pause()),
    "sandbox.resume": ofSandbox((s) => s.resume()),
    "sandbox.hibernate": ofSandbox((s, o) => s.hibernate(o)),
    "sandbox.wake": ofSandbox((s) => s.wake()),
    "sandbox.snapshot": ofSandbox((s, o) => s.snapshot(o)),
    "sandbox.fork": ofSandbox(forked),
    "sandbox.fork_tree": ofSandbox((s, o) => s.forkTree(o)),
    "sandbox.promote": ofSandbox((s, o) => s.promote(o)),
    "sandbox.explore": ofSandbox((s, _, args) => explored(s, args)),
    "sandbox.events": ofSandbox((s, o) => collected(s.events(o))),
    "sandbox.follow_events": ofSandbox((s, { count, ...o }) => collected(s.events({ ...o, follow: true }), undefined, count)),
    "sandbox.logs": ofSandbox((s, o) => collected(s.logs(o))),
    "sandbox.follow_logs": ofSandbox((s, { count, ...o }) => collected(s.logs({ ...o, follow: true }), undefined, count)),
    "sandbox.languages": ofSandbox((s) => s.languages()),
    "network.get": ofSandbox((s) => s.network.get()),
    "network.set": ofSandbox((s, o) => s.network.set(o)),
    "network.log": ofSandbox((s, o) => collected(s.network.log(o))),
    "network.follow": ofSandbox((s, { count, ...o }) => collected(s.network.log({ ...o, follow: true }), undefined, count)),
    "secrets.list": async () => (await client.secrets.list()).map((secret) => secret.name),
    "secrets.set": async ({ name, value }) => void (await client.secrets.set(name, value)),
    "secrets.delete": ({ name }) => client.secrets.delete(name),
    "tools.list": ofSandbox((s) => s.tools.list()),
    "tools.set": ofSandbox((s, _, args) => { const { tools, toolPolicy } = withTools(args); return s.tools.set(tools, { policy: toolPolicy }); }),
    "tools.serve": ofSandbox((s, { policy }) => serveTools(s, policy)),
    "tools.calls": ofSandbox((s, o) => s.tools.calls(o)),
    "tools.close": ({ sandbox }) => served.get(sandbox).tools.close(),
    "tools.decided": ofSandbox((s, o) => decided(client, s, o)),
    "approvals.list": ({ status = "all", ...a }) => client.approvals.list(options({ ...a, status })),
    "approvals.get": ({ id }) => client.approvals.get(id),
    "approvals.decide": ({ id, approve, reason }) => client.approvals.decide(id, approve, reason),
    "sandbox.ports": ofSandbox((s) => s.ports()),
    "sandbox.name_port": ofSandbox((s, { port, ...o }) => s.namePort(port, o)),
    "sandbox.forget_port": ofSandbox((s, { port }) => s.forgetPort(port)),
    "sandbox.signed_preview_url": ofSandbox((s, { port, ...o }) => s.signedPreviewUrl(port, o)),
    "sandbox.run_code": ofSandbox((s, { code, ...o }) => s.runCode(code, o)),
    "sandbox.create_code_context": ofSandbox((s, o) => s.createCodeContext(o)),
    "sandbox.contexts": ofSandbox(async (s) => (await s.contexts()).map((c) => c.id)),
    "sandbox.exec": ofSandbox((s, { cmd, ...o }) => s.exec(cmd, o)),
    "sandbox.exec_stream": ofSandbox((s, _, { cmd, ...args }) => followed((o) => s.execStream(cmd, o), args)),
    "context.run_code": (a) => (a.hear ? followed(({ code, ...o }) => ctx(a).runCode(code, o), withoutHandle(a)) : ctx(a).runCode(a.code, less(a, "sandbox", "context", "code"))),
    "context.stream": (a) => collected(ctx(a).stream(a.code, less(a, "sandbox", "context", "code")), event),
    "context.attach": (a) => collected(ctx(a).attach(a.execution_id, less(a, "sandbox", "context", "execution_id")), event),
    "context.interrupt": (a) => ctx(a).interrupt(),
    "context.restart": (a) => ctx(a).restart(),
    "context.fork": (a) => forked(ctx(a), less(a, "sandbox", "context")),
    "context.info": (a) => ctx(a).info(),
    "context.close": (a) => ctx(a).close(),
    "commands.run": ofSandbox((s, _, { cmd, ...args }) => followed((o) => s.commands.run(cmd, o), args)),
    "commands.start": ofSandbox((s, { cmd, ...o }) => s.commands.run(cmd, { ...o, background: true })),
    "pty.create": ofSandbox((s, o) => s.pty.create(o)),
    "pty.resize": async ({ sandbox, pid, rows, cols }) => (await of(sandbox).pty.connect(pid)).resize(rows, cols),
    "commands.list": ofSandbox((s) => s.commands.list()),
    "commands.kill": ofSandbox((s, { pid }) => s.commands.kill(pid)),
    "process.info": async (a) => (await process(a)).info(),
    "process.wait": async (a) => (await process(a)).wait(less(a, "sandbox", "pid")),
    "process.stream": async (a) => collected((await process(a)).stream(less(a, "sandbox", "pid")), event),
    "process.send_stdin": async (a) => (await process(a)).sendStdin(fromBase64(a.data), less(a, "sandbox", "pid", "data")),
    "process.close_stdin": async (a) => (await process(a)).closeStdin(),
    "process.signal": async (a) => (await process(a)).signal(a.signal),
    "process.kill": async (a) => (await process(a)).kill(),
    "filesystem.read": ofSandbox((s, { path, ...o }) => s.filesystem.readBytes(path, o)),
    "filesystem.write": ofSandbox((s, { path, data, ...o }) => s.filesystem.write(path, fromBase64(data), o)),
    "filesystem.list": ofSandbox((s, { path }) => s.filesystem.list(path)),
    "filesystem.stat": ofSandbox((s, { path }) => s.filesystem.stat(path)),
    "filesystem.exists": ofSandbox((s, { path }) => s.filesystem.exists(path)),
    "filesystem.mkdir": ofSandbox((s, { path }) => s.filesystem.mkdir(path)),
    "filesystem.move": ofSandbox((s, { source, target, ...o }) => s.filesystem.move(source, target, o)),
    "filesystem.remove": ofSandbox((s, { path, ...o }) => s.filesystem.remove(path, o)),
    "filesystem.copied_dir": ofSandbox((s, _, args) => copiedDir(s, args)),
    "agents.start": ({ options: o, task, data_files: data, ...a }) => agent(limited(o)).start(task, { ...options(a), data }),
    "agents.functions": (a) => functionsOfAgents(agent, a),
    "agents.get": ({ id }) => agent().get(id),
    "agents.runs": (a) => agent().runs(a),
    "agent.wait": ofRun(async (run) => ({ answer: await run.wait(), reason: run.reason })),
    "agent.events": ofRun((run, o) => collected(run.events(o))),
    "agent.transcript": ofRun((run) => run.transcript()),
    "agent.figure": ofRun((run, { file }) => run.figure(file)),
    "agent.notebook": ofRun((run) => run.notebook()),
    "agent.report": ofRun((run) => run.report()),
    "agent.refresh": ofRun((run) => run.refresh()),
    "agent.cancel": ofRun((run) => run.cancel()),
    "agent.delete": ofRun((run) => run.delete()),
    "filesystem.watch": ofSandbox((s, o) => watched(s.filesystem, o)),
    "filesystem.download_url": ofSandbox((s, { path, ...o }) => s.filesystem.downloadUrl(path, o)),
    "filesystem.upload_url": ofSandbox((s, { path, ...o }) => s.filesystem.uploadUrl(path, o)),
  };
}


export async function perform(ops, { op, args = {} }) {
  try {
    return { value: plain(await ops[op](args)) };
  } catch (error) {
    if (!(error instanceof sdk.PandaStackError)) throw error;
    return { error: failure(error) };
  }
}

// The public verbs of each noun, and the errors.
function surface() {
  const classes = Object.entries(sdk).filter(([name, value]) => typeof value === "function" && /^[A-Z]/.test(name) && value.name === name);
  const isError = (value) => value.prototype instanceof Error;
  const own = (object) => Object.entries(Object.getOwnPropertyDescriptors(object)).filter(([name, of]) => typeof of.value === "function" && name !== "constructor").map(([name]) => name);
  const verbs = (value) => {
    const names = own(value);
    for (let at = value.prototype; at !== Object.prototype; at = Object.getPrototypeOf(at)) names.push(...own(at));
    return [...new Set(names)].sort();
  };
  const nouns = Object.fromEntries(classes.filter(([, value]) => !isError(value)).map(([name, value]) => [name, verbs(value)]));
  return { nouns, errors: classes.filter(([, value]) => isError(value)).map(([name]) => name).sort() };
}

if (globalThis.process?.argv[1]?.endsWith("sdk_typescript.mjs")) {
  if (process.argv[2] === "--ops") {
    console.log(JSON.stringify(Object.keys(operations({ apiUrl: "http://127.0.0.1:1" })).sort()));
    process.exit(0);
  }
  if (process.argv[2] === "--surface") {
    console.log(JSON.stringify(surface()));
    process.exit(0);
  }
  const { createInterface } = await import("node:readline");
  const ops = operations();
  for await (const line of createInterface({ input: process.stdin })) console.log(JSON.stringify(await perform(ops, JSON.parse(line))));
}
