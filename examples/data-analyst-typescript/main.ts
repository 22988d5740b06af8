// Asks a question about a CSV, shows how the answer comes about, and keeps the charts.
//
//     node out/main.js [--csv FILE] [--out FOLDER] [QUESTION]
import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { Analyst, type Step } from "./analyst.js";
import { Model } from "./model.js";

const QUESTION = "Which month brought in the most revenue, and which region was strongest in it? Draw the revenue by month.";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { csv: { type: "string", default: "../data-analyst/sales.csv" }, out: { type: "string", default: "out/charts" } },
});
const out = resolve(values.out);
let charts = 0;

function show({ type, text }: Step): void {
  if (type === "chart") {
    mkdirSync(out, { recursive: true });
    const path = join(out, ++charts === 1 ? "chart.png" : `chart-${charts}.png`);
    writeFileSync(path, Buffer.from(text, "base64"));
    console.log(`\n  The chart is at ${path}`);
    return;
  }
  const before = { question: "? ", code: "> ", answer: "= ", error: "! ", output: "  " }[type];
  console.log(`\n${text.trimEnd().split("\n").map((line) => before + line).join("\n")}`);
}

await using analyst = await Analyst.start(new Model(), show);
await analyst.load(values.csv);
await analyst.ask(positionals[0] ?? QUESTION);
