// Drives the published TypeScript client through what it can do here. Each line of output is one failure.
import * as sdk from "@pandastack/sdk";

const { Sandbox } = sdk;
let failures = 0;
function check(name, ok, seen) {
  if (ok) return;
  failures++;
  console.log(`${name}: ${JSON.stringify(seen)}`);
}
async function raises(name, kind, call) {
  try {
    check(`${name} raised nothing`, false, await call());
  } catch (error) {
    check(name, error.constructor.name === kind, `${error.constructor.name}: ${error.message}`);
  }
}

const sandbox = await Sandbox.create({ template: "code-interpreter", ttlSeconds: 300, metadata: { a: "b" } });
try {
  check("list", (await Sandbox.list()).some((s) => s.id === sandbox.id));
  check("get", (await Sandbox.get(sandbox.id)).id === sandbox.id);

  const files = sandbox.filesystem;
  await files.write("/workspace/in/sales.csv", "region,amount\nEMEA,1\nÜ,3\n");
  check("read", (await files.read("/workspace/in/sales.csv")).includes("Ü,3"));
  const written = await files.write("/workspace/b.bin", new Uint8Array([0, 1, 254, 255]));
  check("write bytes", written.bytes === 4, written);
  check("exists", await files.exists("/workspace/b.bin"));
  check("exists not", !(await files.exists("/workspace/none")));
  check("list files", (await files.list("/workspace/in")).some((e) => e.name === "sales.csv" && e.is_dir === false));
  check("stat", (await files.stat("/workspace/b.bin")).size === 4);
  await raises("relative path", "BadRequestError", () => files.read("relative"));
  await raises("missing file", "NotFoundError", () => files.read("/none"));

  const ctx = await sandbox.createCodeContext();
  let ex = await ctx.runCode("\nimport pandas as pd\nimport matplotlib.pyplot as plt\ndf = pd.read_csv('/workspace/in/sales.csv')\n");
  check("assignment", !ex.error && ex.results.length === 0 && ex.text === undefined, ex);
  ex = await ctx.runCode("df.head()");
  check("table", ex.results[0].html.includes("<table") && ex.text.includes("EMEA"), ex);
  ex = await ctx.runCode("df.amount.plot.bar(); plt.show()", { timeoutSeconds: 25 });
  check("chart", Buffer.from(ex.png ?? "", "base64").toString("latin1", 1, 4) === "PNG", ex);
  ex = await ctx.runCode("1/0");
  check("error", ex.error?.includes("ZeroDivisionError") && ex.exit_code === 1, ex);
  ex = await ctx.runCode("import time; time.sleep(60)", { timeoutSeconds: 1 });
  check("deadline of a cell", ex.error && ex.exit_code === 1, ex);
  ex = await ctx.runCode("print('hé'); df.amount.sum()");
  check("state survived", ex.stdout === "hé\n" && ex.text?.includes("4"), ex);
  await ctx.close();
  await ctx.close();
  await raises("closed context", "NotFoundError", () => ctx.runCode("1"));

  let result = await sandbox.exec("echo out; echo err >&2; exit 3");
  check("exec", result.exitCode === 3 && result.stdout === "out\n" && result.stderr === "err\n", result);
  await raises("exec checked", "CommandError", () => sandbox.exec("exit 2", { check: true }));
  await raises("deadline of a command", "SandboxTimeout", () => sandbox.exec("sleep 60", { timeoutSeconds: 1 }));
  await raises("deadline of a stream", "SandboxTimeout", () => sandbox.execStream("sleep 60", { timeoutSeconds: 1 }));
  let seen = "";
  const code = await sandbox.execStream("echo one; sleep 0.2; echo two >&2; exit 4", {
    onStdout: (chunk) => (seen += chunk),
    onStderr: (chunk) => (seen += "E:" + chunk),
  });
  check("exec stream", code === 4 && seen === "one\nE:two\n", [code, seen]);
  result = await sandbox.runCode("print(2+2)", "python");
  check("run code", result.stdout === "4\n", result);

  check("lifecycle", (await sandbox.lifecycle()).ttl_seconds === 300);
  check("set ttl", (await sandbox.setTtl(500)).ttl_seconds === 500);
  await sandbox.pause();
  await sandbox.resume();
  check("after a pause", (await sandbox.exec("pwd")).stdout === "/workspace\n");
} finally {
  await sandbox.kill();
}
await raises("killed", "NotFoundError", () => Sandbox.get(sandbox.id));
await raises("no such template", "NotFoundError", () => Sandbox.create({ template: "nonsense" }));

const client = new sdk.Client();
check("templates", (await client.templates.list()).some((t) => t.name === "code-interpreter"));
check("me", await client.me());
const token = await client.tokens.create("published client");
check("token", /^pds_[0-9a-f]{32}$/.test(token.token), token);
await client.tokens.revoke(token.prefix);
process.exit(failures ? 1 : 0);
