// A data analyst: a model that writes pandas, and a sandbox that runs it.
//
// The file is loaded once. Every tool call after that is a cell in the same warm interpreter, so what one call computed the
// next one uses. Charts are caught by the interpreter and go back to the model as pictures.
import { basename } from "node:path";
import { CodeContext, type Execution, Sandbox } from "@pandastack/sdk";
import type { Message, Model, Tool } from "./model.js";

const MAX_ROUNDS = 12; // answers with tool calls before we give up
const MAX_TEXT = 20_000; // characters of one cell's outcome that the model is shown

const INSTRUCTIONS = `You are a careful data analyst. A table is loaded as the pandas DataFrame \`df\` in a Python session that
keeps its state between your calls; pandas is imported as pd and matplotlib.pyplot as plt. Use the tool to look, compute
and draw; compute a number before you state it. Draw with plt and end with plt.show(); you are then shown the chart.
Answer in one or two sentences.`;

const TOOLS: Tool[] = [
  {
    type: "function",
    function: {
      name: "run_python",
      description:
        "Runs a cell in the Python session where `df` is loaded. Returns what it prints, the value of its last expression (tables as HTML) or the traceback. Charts are shown to you afterwards.",
      parameters: {
        type: "object",
        properties: { code: { type: "string", description: "Python, as in a notebook cell" } },
        required: ["code"],
        additionalProperties: false,
      },
      strict: true,
    },
  },
];

/** Something that happened; a chart's text is its PNG in base64, and comes while the cell that draws it still runs. */
export interface Step {
  type: "question" | "code" | "output" | "chart" | "error" | "answer";
  text: string;
}

/** One conversation about one file. With `await using` the sandbox ends with it. */
export class Analyst implements AsyncDisposable {
  readonly #messages: Message[] = [{ role: "system", content: INSTRUCTIONS }];

  private constructor(
    private readonly model: Model,
    private readonly listen: (step: Step) => void,
    private readonly sandbox: Sandbox,
    private readonly session: CodeContext,
  ) {}

  static async start(model: Model, listen: (step: Step) => void): Promise<Analyst> {
    const sandbox = await Sandbox.create({ template: "code-interpreter", ttlSeconds: 3600 });
    return new Analyst(model, listen, sandbox, await sandbox.createCodeContext());
  }

  /** Puts the file into the sandbox and reads it once. Columns called "date" become dates. */
  async load(csv: string): Promise<void> {
    const path = `/workspace/${basename(csv)}`;
    await this.sandbox.filesystem.upload(csv, path);
    const loaded = await this.session.runCode(`
import matplotlib.pyplot as plt
import pandas as pd
df = pd.read_csv(${JSON.stringify(path)})
if 'date' in df: df['date'] = pd.to_datetime(df['date'])
print(df.dtypes.to_string(), f'\\n{len(df)} rows')`);
    if (loaded.error !== undefined) throw new Error(`${csv} can't be read:\n${loaded.error}`);
    this.#messages.push({ role: "system", content: `\`df\` holds ${basename(csv)}:\n${loaded.stdout}` });
  }

  /** Lets the model work until it answers. */
  async ask(question: string): Promise<string> {
    this.listen({ type: "question", text: question });
    this.#messages.push({ role: "user", content: question });
    for (let round = 0; round < MAX_ROUNDS; round++) {
      const message = await this.model.complete(this.#messages, TOOLS);
      this.#messages.push(message);
      if (!message.tool_calls?.length) {
        const answer = message.content ?? "";
        this.listen({ type: "answer", text: answer });
        return answer;
      }
      const charts: string[] = [];
      for (const call of message.tool_calls) {
        const { text, drawn } = await this.#run(call.function.arguments);
        this.#messages.push({ role: "tool", tool_call_id: call.id, content: text });
        charts.push(...drawn);
      }
      // A tool message holds only text, so the pictures follow in a user message, after all of them.
      if (charts.length > 0) {
        const pictures = charts.map((png) => ({ type: "image_url" as const, image_url: { url: `data:image/png;base64,${png}` } }));
        this.#messages.push({ role: "user", content: [{ type: "text", text: "The charts of your last calls:" }, ...pictures] });
      }
    }
    throw new Error(`no answer after ${MAX_ROUNDS} rounds`);
  }

  /** Runs what the model wrote; gives the text for it and the charts (PNG, base64). */
  async #run(given: string): Promise<{ text: string; drawn: string[] }> {
    const code = codeOf(given);
    if (code === undefined) return { text: 'The arguments must be a JSON object {"code": "…"}.', drawn: [] };
    this.listen({ type: "code", text: code });
    const ex = await this.session.runCode(code, {
      timeoutSeconds: 60,
      onResult: ({ png, text }) => (png ? this.listen({ type: "chart", text: png }) : text && this.listen({ type: "output", text })),
    });
    if (ex.error ?? ex.stdout) this.listen(ex.error ? { type: "error", text: ex.error } : { type: "output", text: ex.stdout });
    return { text: describe(ex), drawn: ex.results.flatMap(({ png }) => png ?? []) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.sandbox.kill();
  }
}

function codeOf(given: string): string | undefined {
  try {
    const { code } = JSON.parse(given) as { code?: unknown };
    return typeof code === "string" ? code : undefined;
  } catch {
    return undefined;
  }
}

/** A cell's outcome as the model reads it: never empty, never longer than MAX_TEXT. */
export function describe(ex: Execution): string {
  const charts = ex.results.filter((result) => result.png).length;
  const parts = [
    ex.stdout.trimEnd(),
    ex.stderr.trimEnd(),
    ...ex.results.filter((result) => !result.png).map((result) => (result.html ?? result.text ?? "").trim()),
    ex.error === undefined ? "" : `Error:\n${ex.error}`,
    ex.stateSurvived ? "" : "The session was restarted: its variables are gone, `df` too.",
    charts > 0 ? `(${charts} chart${charts > 1 ? "s" : ""} drawn)` : "",
  ];
  const text = parts.filter((part) => part !== "").join("\n") || "(no output: did you forget to print, or to end with an expression?)";
  if (text.length <= MAX_TEXT) return text;
  const half = MAX_TEXT / 2;
  return `${text.slice(0, half)}\n[… ${text.length - 2 * half} characters left out …]\n${text.slice(-half)}`;
}
