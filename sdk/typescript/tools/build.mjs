// Writes dist: the same sources as ES modules and as CommonJS, each with its types.
import { execFileSync } from "node:child_process";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = new URL("../", import.meta.url);
const tsc = fileURLToPath(new URL("node_modules/typescript/bin/tsc", root));
rmSync(new URL("dist", root), { recursive: true, force: true });
for (const [format, options] of [["esm", []], ["cjs", ["--module", "CommonJS", "--moduleResolution", "Bundler"]]]) {
  const folder = new URL(`dist/${format}/`, root);
  mkdirSync(folder, { recursive: true });
  writeFileSync(new URL("package.json", folder), `${JSON.stringify({ type: format === "esm" ? "module" : "commonjs" })}\n`);
  execFileSync(process.execPath, [tsc, "-p", fileURLToPath(root), "--outDir", fileURLToPath(folder), ...options], { stdio: "inherit" });
}
