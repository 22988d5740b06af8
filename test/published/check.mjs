// Drives the published TypeScript client, and our own, which takes its place. Each check has the name of one in check.py and of one in
// test_published_clients.py; what came of each goes to standard output as JSON.
import assert from "node:assert/strict";
import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as sdk from "@pandastack/sdk";

const { Client, Sandbox } = sdk;
const outcome = {};
async function check(name, body) {
  try {
    await body();
    outcome[name] = "";
  } catch (error) {
    outcome[name] = String(error.stack ?? error);
  }
}

// Checks that a call fails with a class, and some words.
async function fails(kind, words, call) {
  let value;
  try {
    value = await call();
  } catch (error) {
    assert.ok(error instanceof sdk[kind], `${error.constructor.name}: ${error.message}`); // ours has finer ones below
    assert.match(error.message, words);
    return error;
  }
  assert.fail(`answered ${JSON.stringify(value)}, wanted ${kind}`);
}

// Each public call of the client, and which were made: "every call" holds them against each other.
const [calls, made, watched] = [new Set(), new Set(), new Set()];
function watch(noun, object) {
  if (watched.has(object)) return;
  watched.add(object);
  for (const [verb, of] of Object.entries(Object.getOwnPropertyDescriptors(object))) {
    if (typeof of.value !== "function" || verb === "constructor" || verb.startsWith("_")) continue;
    const call = `${noun}.${verb}`;
    calls.add(call);
    Object.defineProperty(object, verb, { ...of, value(...args) { made.add(call); return of.value.apply(this, args); } });
  }
}

const client = new Client();
watch("Client", Client.prototype);
watch("Sandbox", Sandbox);
watch("Sandbox", Sandbox.prototype);
watch("CodeContext", sdk.CodeContext.prototype);
for (const name of ["sandboxes", "templates", "tokens", "snapshots"]) watch(name, Object.getPrototypeOf(client[name]));
const sandbox = await Sandbox.create({ template: "code-interpreter", ttlSeconds: 300, metadata: { suite: "typescript" } });
try {
  const files = sandbox.filesystem;
  const ctx = await sandbox.createCodeContext();
  watch("filesystem", Object.getPrototypeOf(files));
  watch("commands", Object.getPrototypeOf(sandbox.commands));

  await check("create", async () => {
    const { info } = sandbox;
    assert.equal(info.template, "code-interpreter");
    assert.equal(info.status, "running");
    assert.deepEqual(info.metadata, { suite: "typescript" });
    assert.ok(info.cpu > 0 && info.memory_mb > 0 && info.boot_ms > 0 && info.boot_mode, JSON.stringify(info));
    assert.ok(!Number.isNaN(Date.parse(info.created_at)));
  });
  await check("list", async () => {
    const found = (await Sandbox.list()).find((s) => s.id === sandbox.id);
    assert.equal(found.status, "running");
    assert.deepEqual(found.info.metadata, { suite: "typescript" });
  });
  await check("get", async () => assert.equal((await Sandbox.get(sandbox.id)).template, "code-interpreter"));
  await check("get unknown", () => fails("NotFoundError", /no sandbox/, () => Sandbox.get("sb-nothing")));
  await check("create of an unknown template", () => fails("NotFoundError", /nonsense/, () => Sandbox.create({ template: "nonsense" })));
  await check("create with a bad field", () => fails("BadRequestError", /ttl_seconds/, () => Sandbox.create({ template: "code-interpreter", ttlSeconds: -1 })));
  await check("create with a volume", async () => {
    const error = await fails("ServerError", /volumes/, () => Sandbox.create({ template: "code-interpreter", volumes: [{ name: "v" }] }));
    assert.equal(error.statusCode, 501);
  });

  await check("files of text", async () => {
    const text = "region,amount\nEMEA,1\nÜ\u2028\u0085,3\n";
    const written = await files.write("/workspace/in/sales.csv", text);
    assert.deepEqual(written, { path: "/workspace/in/sales.csv", bytes: Buffer.byteLength(text) });
    assert.equal(await files.read("/workspace/in/sales.csv"), text);
  });
  await check("files of bytes", async () => {
    const bytes = new Uint8Array(5 << 20).map((_, i) => i * 7);
    assert.equal((await files.write("/workspace/big.bin", bytes)).bytes, bytes.length);
    const sum = await sandbox.exec("python3 -c \"print(sum(open('/workspace/big.bin','rb').read()))\"");
    assert.equal(sum.stdout, `${bytes.reduce((a, b) => a + b, 0)}\n`);
  });
  await check("upload and download", async () => {
    const dir = await mkdtemp(join(tmpdir(), "published-"));
    await writeFile(join(dir, "a"), "über\n");
    await files.upload(join(dir, "a"), "/workspace/up/a");
    await files.download("/workspace/up/a", join(dir, "b"));
    assert.equal(await readFile(join(dir, "b"), "utf8"), "über\n");
  });
  await check("list of a folder", async () => {
    await files.write("/workspace/walk/a/b/c.txt", "x");
    const list = await files.list("/workspace/walk");
    assert.deepEqual(list.map((e) => [e.name, e.path, e.is_dir, e.mode]), [["a", "/workspace/walk/a", true, "d"]]);
    const seen = [];
    for await (const { dir, files } of sandbox.filesystem.walk("/workspace/walk")) seen.push([dir, files.map((f) => f.name)]);
    assert.deepEqual(seen, [["/workspace/walk", []], ["/workspace/walk/a", []], ["/workspace/walk/a/b", ["c.txt"]]]);
  });
  await check("stat", async () => {
    await sandbox.exec("touch -d @1700000000.5 /workspace/old");
    const { name, path, is_dir, size, mode, mtime } = await files.stat("/workspace/old");
    assert.deepEqual({ name, path, is_dir, size, mode, mtime }, { name: "old", path: "/workspace/old", is_dir: false, size: 0, mode: "f", mtime: 1700000000 });
    assert.equal(await files.exists("/workspace/old"), true);
    assert.equal(await files.exists("/workspace/none"), false);
  });
  await check("file errors", async () => {
    await fails("BadRequestError", /absolute/, () => files.read("relative"));
    await fails("NotFoundError", /none/, () => files.read("/none"));
    await fails("NotFoundError", /none/, () => files.list("/none"));
  });

  await check("assignment", async () => {
    const ex = await ctx.runCode("\nimport pandas as pd\nimport matplotlib.pyplot as plt\ndf = pd.DataFrame({'region': ['EMEA', 'Ü'], 'amount': [1, 3]})\n");
    assert.deepEqual([ex.error, ex.results, ex.text, ex.stdout, ex.stderr, ex.exit_code], [undefined, [], undefined, "", "", 0]);
    assert.ok(ex.duration_ms > 0);
  });
  await check("table", async () => {
    const ex = await ctx.runCode("df");
    assert.match(ex.results[0].html, /<table/);
    assert.match(ex.text, /EMEA/);
    assert.equal(ex.png, undefined);
  });
  await check("chart", async () => {
    const ex = await ctx.runCode("df.amount.plot.bar(); plt.show()", { timeoutSeconds: 25 });
    assert.equal(Buffer.from(ex.png, "base64").toString("latin1", 1, 4), "PNG");
    assert.equal(ex.results.filter((r) => r.png).length, 1);
    assert.equal(ex.results.find((r) => r.png).chart, ex.png);
  });
  await check("table before chart", async () => {
    const ex = await ctx.runCode("df.amount.plot.bar(); plt.show()\ndf");
    assert.match(ex.results[0].html, /<table/);
    assert.ok(ex.png && ex.results.length === 2, JSON.stringify(ex.results.map((r) => Object.keys(r.data))));
  });
  await check("kinds of results", async () => {
    const ex = await ctx.runCode("from IPython.display import *\ndisplay(JSON({'a': [1, 'ü']}))\ndisplay(Markdown('*m*'))\ndisplay(SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>'))\n'last'");
    assert.equal(ex.text, "'last'");
    const kinds = ex.results.slice(1);
    assert.deepEqual(kinds[0].json, { a: [1, "ü"] });
    assert.equal(kinds[1].markdown, "*m*");
    assert.match(kinds[2].svg, /^<svg/);
    assert.equal(kinds[2].chart, kinds[2].svg);
    for (const r of ex.results) for (const v of Object.values(r.data)) assert.equal(typeof v, "string");
  });
  await check("output", async () => {
    const ex = await ctx.runCode("import sys, os\nprint('hé\\u0085x')\nprint('err', file=sys.stderr)\nos.system('echo child')\n6 * 7");
    assert.deepEqual([ex.stdout.includes("hé\u0085x\n"), ex.stdout.includes("child\n"), ex.stderr, ex.text], [true, true, "err\n", "42"]);
  });
  await check("error of a cell", async () => {
    const ex = await ctx.runCode("print('before')\n1/0");
    assert.match(ex.error, /ZeroDivisionError/);
    assert.deepEqual([ex.exit_code, ex.stdout], [1, "before\n"]);
  });
  await check("deadline of a cell", async () => {
    const ex = await ctx.runCode("kept = 1\nimport time; time.sleep(60)", { timeoutSeconds: 1 });
    assert.ok(ex.error && ex.exit_code === 1, JSON.stringify(ex));
    assert.equal((await ctx.runCode("kept")).text, "1");
  });
  await check("empty cell", () => fails("BadRequestError", /code is empty/, () => ctx.runCode("")));
  await check("two contexts", async () => {
    const other = await sandbox.createCodeContext("py");
    await ctx.runCode("mine = 1");
    assert.match((await other.runCode("mine")).error, /NameError/);
    await other.close();
    await other.close();
    await fails("NotFoundError", /no context|closed/, () => other.runCode("1"));
  });
  await check("context of another language", () => fails("BadRequestError", /python/, () => sandbox.createCodeContext("cobol")));

  await check("exec", async () => {
    const result = await sandbox.exec("pwd; echo err >&2; exit 3");
    assert.deepEqual([result.exitCode, result.exit_code, result.stdout, result.stderr], [3, 3, "/workspace\n", "err\n"]);
    assert.ok(result.duration_ms > 0);
    assert.equal((await sandbox.commands.run("echo hé")).stdout, "hé\n");
  });
  await check("exec with much output", async () => assert.equal((await sandbox.exec("head -c 1000000 /dev/zero | tr '\\0' x")).stdout.length, 1000000));
  await check("exec checked", async () => {
    const error = await fails("CommandError", /code 2/, () => sandbox.exec("echo o; exit 2", { check: true }));
    assert.deepEqual([error.exitCode, error.stdout], [2, "o\n"]);
  });
  await check("exec of nothing", () => fails("BadRequestError", /cmd/, () => sandbox.exec("")));
  await check("deadline of a command", () => fails("SandboxTimeout", /sleep|timeout/, () => sandbox.exec("sleep 60", { timeoutSeconds: 1 })));
  await check("stream", async () => {
    let out = "", err = "";
    const code = await sandbox.execStream("printf 'hé\\302\\205\\342\\200\\250x\\n'; echo two >&2; exit 4", { onStdout: (c) => (out += c), onStderr: (c) => (err += c) });
    assert.deepEqual([code, out, err], [4, "hé\u0085\u2028x\n", "two\n"]);
  });
  await check("deadline of a stream", () => fails("SandboxTimeout", /timeout/, () => sandbox.execStream("sleep 60", { timeoutSeconds: 1 })));
  await check("run code of a sandbox", async () => {
    assert.equal((await sandbox.runCode("print(2+2)", "python")).stdout, "4\n");
    assert.equal((await sandbox.runCode("echo $((2+2))", "shell")).stdout, "4\n");
  });

  await check("lifecycle", async () => {
    const life = await sandbox.lifecycle();
    assert.deepEqual([life.ttl_seconds, life.persistent], [300, false]);
    assert.ok(life.idle_seconds >= 0);
    assert.equal((await sandbox.setTtl(500)).ttl_seconds, 500);
    assert.equal((await sandbox.setPersistent(false)).persistent, false);
  });
  await check("pause", async () => {
    await sandbox.pause();
    try {
      assert.equal((await Sandbox.get(sandbox.id)).status, "paused");
      await fails("BadRequestError", /paused/, () => sandbox.exec("true"));
    } finally {
      await sandbox.resume();
    }
    assert.equal((await ctx.runCode("kept")).text, "1");
  });

  await check("hibernation", async () => {
    await ctx.runCode("slept = 'sound'");
    await sandbox.hibernate();
    assert.equal((await Sandbox.get(sandbox.id)).status, "hibernated");
    await sandbox.wake();
    assert.equal((await Sandbox.get(sandbox.id)).status, "running");
    assert.equal((await ctx.runCode("slept")).text, "'sound'");
    await sandbox.hibernate();
    assert.equal((await ctx.runCode("slept")).text, "'sound'"); // any call wakes it
  });
  await check("snapshot", async () => {
    await ctx.runCode("before = 41");
    const snapshot = await sandbox.snapshot();
    assert.equal(snapshot.sandbox_id, sandbox.id);
    const copy = await Sandbox.create({ fromSnapshot: snapshot.id, ttlSeconds: 120 });
    try {
      assert.equal((await new sdk.CodeContext(client, copy.id, ctx.id).runCode("before + 1")).text, "42");
      assert.equal((await copy.exec("cat /workspace/in/sales.csv")).stdout.slice(0, 6), "region");
      assert.equal(copy.info.from_snapshot, snapshot.id);
    } finally {
      await copy.kill();
    }
    assert.deepEqual((await client.snapshots.list({ sandbox_id: sandbox.id })).map((s) => s.id), [snapshot.id]);
    assert.ok((await client.snapshots.get(snapshot.id)).size_bytes > 0);
    await client.snapshots.delete(snapshot.id);
    await fails("NotFoundError", /snapshot/, () => client.snapshots.get(snapshot.id));
    await fails("NotFoundError", /snapshot/, () => Sandbox.create({ fromSnapshot: snapshot.id }));
  });

  await check("fork", async () => {
    await ctx.runCode("forked = 'from here'");
    const child = await sandbox.fork({ metadata: { child: "yes" } });
    try {
      assert.notEqual(child.id, sandbox.id);
      assert.deepEqual([child.status, child.template, child.info.metadata.child], ["running", "code-interpreter", "yes"]);
      assert.equal((await new sdk.CodeContext(client, child.id, ctx.id).runCode("forked")).text, "'from here'");
      await child.exec("echo child > /workspace/only");
      assert.equal(await files.exists("/workspace/only"), false);
    } finally {
      await child.kill();
    }
  });
  await check("fork tree", async () => {
    const children = await sandbox.forkTree({ count: 2, metadata: { a: "b" } });
    const [one, two] = children;
    try {
      assert.equal(new Set([sandbox.id, one.id, two.id]).size, 3);
      assert.equal(one.info.metadata.fork_tree_id, two.info.metadata.fork_tree_id);
      const promoted = await one.promote({ cleanupSiblings: true });
      assert.deepEqual([promoted.winner, promoted.deleted, promoted.failures], [one.id, [two.id], {}]);
      assert.equal((await one.exec("echo $((2+2))")).stdout, "4\n");
      await fails("NotFoundError", /./, () => Sandbox.get(two.id));
    } finally {
      for (const child of children) await child.kill().catch(() => {}); // one of them has ended
    }
  });
  await check("explore", async () => {
    const result = await sandbox.explore(["exit 1", "echo PASS"], { scoreFn: (_, o) => (o.stdoutTail.includes("PASS") ? 1 : 0) });
    try {
      assert.equal(result.winnerOutcome.label, "echo PASS");
      assert.deepEqual([result.errors, result.reaped.length, result.outcomes.length], [[], 1, 2]);
      assert.equal((await result.winner.exec("pwd")).stdout, "/workspace\n");
    } finally {
      await result.winner.kill();
    }
  });
  await check("logs", async () => {
    const lines = [];
    for await (const line of sandbox.logs({ stream: "both" })) lines.push(line);
    assert.ok(lines.length > 0 && lines.every((l) => typeof l === "string" && !l.includes("\n")), JSON.stringify(lines.slice(0, 3)));
    for await (const line of sandbox.logs({ follow: true })) {
      assert.equal(line, lines[0]);
      break;
    }
  });

  await check("templates", async () => {
    assert.ok((await client.templates.list()).some((t) => t.name === "code-interpreter" && t.size_bytes > 0 && t.memory_mb > 0));
    assert.equal((await client.templates.get("code-interpreter")).name, "code-interpreter");
    await fails("NotFoundError", /nonsense/, () => client.templates.get("nonsense"));
  });
  await check("from the client", async () => {
    const other = await client.sandboxes.create({ template: "code-interpreter", ttlSeconds: 60 });
    assert.equal((await client.sandboxes.get(other.id)).id, other.id);
    assert.equal((await Sandbox.fromInfo(other.info, client).exec("echo same")).stdout, "same\n");
    assert.ok((await client.sandboxes.list()).some((s) => s.id === other.id));
    await client.sandboxes.delete(other.id);
    await fails("NotFoundError", /./, () => Sandbox.get(other.id));
    const slash = new Client({ apiUrl: `${process.env.PANDASTACK_API}/v1/` });
    assert.ok((await slash.me()).id);
  });
  await check("me", async () => {
    const me = await client.me();
    assert.ok(me.id && me.workspace, JSON.stringify(me));
  });
  await check("tokens", async () => {
    const token = await client.tokens.create("published client");
    assert.match(token.token, /^pds_[0-9a-f]{32}$/);
    const other = new Client({ apiKey: token.token });
    assert.equal((await other.me()).workspace, (await client.me()).workspace);
    assert.equal((await client.tokens.list()).find((t) => t.prefix === token.prefix).label, "published client");
    await client.tokens.revoke(token.prefix);
    await fails("AuthError", /./, () => other.me());
    await fails("NotFoundError", /./, () => client.tokens.revoke(token.prefix));
  });
  await check("wrong key", async () => {
    const error = await fails("AuthError", /unauthorized/, () => new Client({ apiKey: "pds_" + "0".repeat(32) }).sandboxes.list());
    assert.equal(error.statusCode, 401);
  });
  await check("nobody there", () => fails("NetworkError", /connect/, () => new Client({ apiUrl: "http://127.0.0.1:9" }).me()));
  await check("key of the file", async () => {
    const key = process.env.PANDASTACK_API_KEY;
    delete process.env.PANDASTACK_API_KEY;
    try {
      assert.ok((await new Client().me()).id);
    } finally {
      process.env.PANDASTACK_API_KEY = key;
    }
  });
  await check("preview url", async () => {
    assert.equal(sandbox.previewUrl(80), `https://80-${sandbox.id}.127.0.0.1`);
    assert.throws(() => sandbox.previewUrl(0), RangeError);
  });
  await check("preview of a port", async () => {
    await sandbox.exec("mkdir -p /tmp/site && echo seen > /tmp/site/index.html && (cd /tmp/site; setsid python3 -m http.server 8123 >/dev/null 2>&1 &)");
    let urls = {};
    for (let i = 0; i < 200 && !urls[8123]; i++) {
      urls = await sandbox.previewUrls();
      if (!urls[8123]) await new Promise((resolve) => setTimeout(resolve, 50));
    }
    assert.equal(urls[8123], sandbox.previewUrl(8123));
    // It has no signedPreviewUrl, and its own address is below the API's: the proxy with the key is what it can reach here.
    const answer = await fetch(`${process.env.PANDASTACK_API}/v1/sandboxes/${sandbox.id}/proxy/8123/`, { headers: { authorization: `Bearer ${process.env.PANDASTACK_API_KEY}` } });
    assert.equal(await answer.text(), "seen\n");
  });

  const absent = {
    "templates.build": () => client.templates.build({ name: "n", rootfs: new Uint8Array(8) }),
    "templates.register": () => client.templates.register({ name: "n", imageRef: "i" }),
    "templates.buildFromDockerfile": () => client.templates.buildFromDockerfile({ name: "n", dockerfile: "FROM x\n" }),
    "templates.delete": () => client.templates.delete("code-interpreter"),
    "templates.builds": () => client.templates.builds(),
    "templates.buildStatus": () => client.templates.buildStatus("b"),
    "templates.buildLogs": async () => { for await (const line of client.templates.buildLogs("b")) return line; },
    "volumes.create": () => client.volumes.create({ name: "v", size_mb: 1 }),
    "volumes.list": () => client.volumes.list(),
    "volumes.get": () => client.volumes.get("v"),
    "volumes.delete": () => client.volumes.delete("v"),
    "functions.create": () => client.functions.create("f", "python", "x"),
    "functions.invoke": () => client.functions.invoke("f", {}),
    "schedules.list": () => client.schedules.list(),
    "databases.list": () => client.databases.list(),
    "apps.list": () => client.apps.list(),
    "apps.setEnv": () => client.apps.setEnv("a", "K", "v"),
    "apps.previewRepos": () => client.apps.previewRepos(),
    "apps.listPreviewEnv": () => client.apps.listPreviewEnv(7),
  };
  await check("what is not here", async () => {
    for (const [name, call] of Object.entries(absent)) {
      const error = await fails("ServerError", /this server does not have/, call).catch((e) => assert.fail(`${name}: ${e.message}`));
      assert.equal(error.statusCode, 501, name);
    }
  });

  await check("kill", async () => {
    await sandbox.kill();
    await ctx.close();
    await fails("NotFoundError", /./, () => Sandbox.get(sandbox.id));
    await fails("NotFoundError", /./, () => ctx.runCode("1"));
    assert.ok(!(await Sandbox.list()).some((s) => s.id === sandbox.id));
  });
} finally {
  await sandbox.kill().catch(() => {}); // ended already when all went well
}
// What one has and the other lacks, and what is the same as another by name.
const APART = /^(Client\.(request|shared|version|events)|Sandbox\.(refresh|context|contexts|languages|setLifecycle|metrics|events|signedPreviewUrl|ports|namePort|forgetPort|dial|forward)|tokens\.delete|templates\.waitForBuild|snapshots\.(update|exportArchive|readArchive|importArchive)|CodeContext\.(?!runCode|close)\w+|commands\.(?!run)\w+|filesystem\.(readText|readBytes|readStream|readTar|writeTar|uploadDir|downloadDir|mkdir|move|remove|watch|downloadUrl|uploadUrl))$/;
await check("every call", async () => assert.deepEqual([...calls].filter((call) => !made.has(call) && !APART.test(call)), []));
console.log(JSON.stringify(outcome));
