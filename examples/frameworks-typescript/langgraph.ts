// A LangGraph agent that computes in a sandbox and looks at its own charts.
//
//     node out/langgraph.js [--out FOLDER] [QUESTION]
import { MemorySaver } from "@langchain/langgraph";
import { ChatOpenAI } from "@langchain/openai";
import { Sandbox } from "@pandastack/sdk";
import { figuresMessage, pythonTool } from "@pandastack/sdk/langchain";
import { createAgent, createMiddleware } from "langchain";
import { CSV, keep, options, PROMPT } from "./shared.js";

const { out, question } = options();
await using sandbox = await Sandbox.create({ template: "code-interpreter", ttlSeconds: 3600 });
await sandbox.filesystem.upload(CSV, "/workspace/sales.csv");

// A message of a tool holds text only, so the model is shown the figures of its last calls before it is called again.
const showFigures = createMiddleware({
  name: "ShowFigures",
  beforeModel: ({ messages }) => {
    const figures = figuresMessage(messages);
    return figures && { messages: [figures] };
  },
});

const agent = createAgent({
  model: new ChatOpenAI({ model: process.env["OPENAI_MODEL"] ?? "gpt-5.1", useResponsesApi: false }),
  tools: [pythonTool(sandbox, { onFigure: (figure) => keep(figure, out) })],
  systemPrompt: PROMPT,
  middleware: [showFigures],
  checkpointer: new MemorySaver(), // a later message of the same thread goes on where the last one ended
});
const { messages } = await agent.invoke({ messages: [{ role: "user", content: question }] }, { configurable: { thread_id: "1" } });
console.log(`= ${messages.at(-1)?.text}`);
