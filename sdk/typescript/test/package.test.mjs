// The package as it is published: what is in it, and that programs of both kinds can use it.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
function run(command, args, cwd) {
  const done = spawnSync(command, args, { cwd, encoding: "utf8" });
  assert.equal(done.status, 0, `${command} ${args.join(" ")}\n${done.stdout}${done.stderr}`);
  return done.stdout;
}

test("what npm packs installs, is imported and required, and has types for both", (t) => {
  const dir = mkdtempSync(join(tmpdir(), "pandastack-pack-"));
  t.after(() => rmSync(dir, { recursive: true }));
  const [packed] = JSON.parse(run("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", dir], root));
  const names = packed.files.map((file) => file.path);
  for (const name of ["dist/esm/index.js", "dist/cjs/index.js", "dist/esm/index.d.ts", "dist/cjs/index.d.ts", "README.md", "package.json"]) assert.ok(names.includes(name), name);
  assert.deepEqual(names.filter((name) => !/^(dist\/(esm|cjs)\/([a-z]+\.(js|d\.ts)|package\.json)|README\.md|package\.json)$/.test(name)), []);

  writeFileSync(join(dir, "package.json"), JSON.stringify({ private: true }));
  run("npm", ["install", "--offline", "--no-audit", "--no-fund", join(dir, packed.filename)], dir);
  const words = 'new Client({ apiUrl: "http://x" }).apiUrl + Sandbox.name + new NotFoundError("n").name';
  writeFileSync(join(dir, "a.mjs"), `import Default, { Client, Sandbox, NotFoundError } from "@pandastack/sdk"; console.log(${words} + (Default === Client));`);
  writeFileSync(join(dir, "b.cjs"), `const { Client, Sandbox, NotFoundError, default: Default } = require("@pandastack/sdk"); console.log(${words} + (Default === Client));`);
  for (const file of ["a.mjs", "b.cjs"]) assert.equal(run(process.execPath, [file], dir), "http://x/v1SandboxNotFoundErrortrue\n", file);

  // Adapters of frameworks: one needs nothing, the other says what it needs, and of an earlier version what it lacks.
  writeFileSync(join(dir, "e.mjs"), 'import { pythonTool } from "@pandastack/sdk/ai"; console.log(typeof pythonTool);');
  writeFileSync(join(dir, "f.cjs"), 'console.log(typeof require("@pandastack/sdk/ai").pythonTool);');
  for (const file of ["e.mjs", "f.cjs"]) assert.equal(run(process.execPath, [file], dir), "function\n", file);
  const tool = "pythonTool({ runCode() {} })";
  writeFileSync(join(dir, "g.mjs"), `import { pythonTool } from "@pandastack/sdk/langchain"; ${tool};`);
  writeFileSync(join(dir, "h.cjs"), `const { pythonTool } = require("@pandastack/sdk/langchain"); ${tool};`);
  const failed = (file) => spawnSync(process.execPath, [file], { cwd: dir, encoding: "utf8" }).stderr;
  for (const file of ["g.mjs", "h.cjs"]) assert.match(failed(file), /Cannot find (package|module) '@langchain\/core/, file);
  const early = join(dir, "node_modules/@langchain/core");
  mkdirSync(early, { recursive: true });
  writeFileSync(join(early, "package.json"), JSON.stringify({ name: "@langchain/core", version: "0.0.1", exports: { "./tools": "./none.js", "./messages": "./none.js" } }));
  writeFileSync(join(early, "none.js"), "exports.none = 1;");
  for (const file of ["g.mjs", "h.cjs"]) assert.match(failed(file), /is for @langchain\/core 1\.0 and newer.* has no DynamicStructuredTool: npm install @langchain\/core@1/, file);

  const source = 'import { Sandbox, type Execution } from "@pandastack/sdk";\nexport async function f(sandbox: Sandbox): Promise<string> {\n  const ex: Execution = await sandbox.runCode("1");\n  return ex.error ?? ex.stdout;\n}\n';
  const adapter = 'import { pythonTool, type PythonModelOutput } from "@pandastack/sdk/ai";\nexport const told = async (sandbox: Sandbox): Promise<PythonModelOutput> => {\n  const tool = pythonTool(sandbox);\n  return tool.toModelOutput({ output: await tool.execute({ code: "1" }, {}) });\n};\n';
  writeFileSync(join(dir, "c.mts"), source + adapter);
  writeFileSync(join(dir, "d.cts"), source + adapter);
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  // Without the skip: the declarations themselves are checked, with no types but the platform's.
  run(process.execPath, [tsc, "--noEmit", "--strict", "--target", "es2022", "--lib", "es2023,esnext.disposable,dom,dom.asynciterable", "--module", "nodenext", "c.mts", "d.cts"], dir);
});

test("the package depends on nothing, frameworks are nobody's duty, and its lockfile names no registry", () => {
  const read = (name) => JSON.parse(readFileSync(join(root, name), "utf8"));
  const { dependencies, peerDependencies, peerDependenciesMeta, optionalDependencies, version } = read("package.json");
  assert.deepEqual([dependencies, optionalDependencies], [undefined, undefined]);
  assert.deepEqual(peerDependenciesMeta, Object.fromEntries(Object.keys(peerDependencies).map((name) => [name, { optional: true }])));
  assert.equal(readFileSync(join(root, "src/version.ts"), "utf8"), `export const VERSION = "${version}";\n`);
  for (const [name, entry] of Object.entries(read("package-lock.json").packages)) assert.equal(entry.resolved, undefined, name);
});

test("the types of the API are those of its description", () => {
  run(process.execPath, ["tools/api-types.mjs", "--check"], root);
});

test("everything public says what it is", () => {
  const folder = join(root, "dist/esm");
  const index = readFileSync(join(folder, "index.d.ts"), "utf8");
  const exported = new Set([...index.matchAll(/^export (?:type )?\{([^}]*)\} from "\.\/(\w+)\.js"/gms)].flatMap(([, names, file]) => names.split(",").map((name) => `${file}.d.ts ${name.trim().split(" ")[0]}`)));
  const whole = new Set([...index.matchAll(/^export \* from "\.\/(\w+)\.js"/gm)].map(([, name]) => `${name}.d.ts`));
  const bare = [];
  for (const file of readdirSync(folder).filter((name) => name.endsWith(".d.ts") && !["api.d.ts", "version.d.ts"].includes(name))) {
    let [before, last, shown] = ["", "", false];
    for (const line of readFileSync(join(folder, file), "utf8").split("\n")) {
      const declared = /^export (?:declare )?(?:class|interface|function|const|type) (\w+)/.exec(line)?.[1];
      if (declared !== undefined) shown = (whole.has(file) || exported.has(`${file} ${declared}`)) && !/Fields$|^(Cell|Process)Event$/.test(declared); // as their classes say; as one line each says
      const name = declared ?? /^    (?:static |readonly |get |set |async )*(\w+)[?<:(]/.exec(line)?.[1];
      const said = before.trimEnd().endsWith("*/") || name === last || ["constructor", "name"].includes(name); // overloads share their words
      if (name !== undefined && shown && !said) bare.push(`${file}: ${line.trim()}`);
      if (name !== undefined) last = name;
      if (line.trim() !== "") before = line;
    }
  }
  assert.deepEqual(bare, []);
});
