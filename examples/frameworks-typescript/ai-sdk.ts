// The AI SDK with a tool that computes in a sandbox.
//
//     node out/ai-sdk.js [--out FOLDER] [QUESTION]
import { createOpenAI } from "@ai-sdk/openai";
import { Sandbox } from "@pandastack/sdk";
import { pythonTool } from "@pandastack/sdk/ai";
import { generateText, stepCountIs } from "ai";
import { CSV, keep, options, PROMPT } from "./shared.js";

const { out, question } = options();
await using sandbox = await Sandbox.create({ template: "code-interpreter", ttlSeconds: 3600 });
await sandbox.filesystem.upload(CSV, "/workspace/sales.csv");

const openai = createOpenAI(); // with OPENAI_BASE_URL and OPENAI_API_KEY
const { text } = await generateText({
  model: openai.chat(process.env["OPENAI_MODEL"] ?? "gpt-5.1"),
  tools: { run_python: pythonTool(sandbox, { onFigure: (figure) => keep(figure, out) }) },
  stopWhen: stepCountIs(12),
  system: PROMPT,
  prompt: question,
});
console.log(`= ${text}`);
