// What both programs have in common: their arguments, and where figures are kept.
import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import type { Figure } from "@pandastack/sdk/langchain";

export const CSV = new URL("../../data-analyst/sales.csv", import.meta.url).pathname;
export const PROMPT =
  "You compute with the tool run_python instead of guessing. The table of sales is in /workspace/sales.csv. Draw with matplotlib and end with plt.show().";

export function options(): { out: string; question: string } {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: { out: { type: "string", default: "out/charts" } } });
  return { out: resolve(values.out), question: positionals[0] ?? "Which region sold most? Draw the revenue of each." };
}

let kept = 0;

export function keep({ mime, base64 }: Figure, folder: string): void {
  mkdirSync(folder, { recursive: true });
  const path = join(folder, `chart-${++kept}.${mime === "image/svg+xml" ? "svg" : mime.slice("image/".length)}`);
  writeFileSync(path, Buffer.from(base64, "base64"));
  console.log(`The chart is at ${path}`);
}
