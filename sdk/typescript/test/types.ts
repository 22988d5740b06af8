// What the compiler must accept, and what it must refuse. It is only checked, never run.
import { Agent, type AgentEvent, type AgentRun, type CellEvent, Client, type CodeContext, type Copied, type Execution, ExecResult, NotFoundError, Process, Sandbox, tool, type StandardSchema, type api } from "@pandastack/sdk";
import { pythonTool, type Observation } from "@pandastack/sdk/ai";
import * as langchain from "@pandastack/sdk/langchain";

export async function accepted(): Promise<void> {
  await using sandbox = await Sandbox.create({ template: "code-interpreter", ttlSeconds: 3600, apiKey: "pds_x" });
  await using ctx: CodeContext = await sandbox.createCodeContext();
  const ex: Execution = await ctx.runCode("1 + 1", { timeoutSeconds: 5, signal: AbortSignal.timeout(10_000) });
  const said: string = ex.error ?? ex.stdout;
  const chart: string | undefined = ex.results[0]?.chart ?? ex.png ?? said;
  const end: "ok" | "error" | "timeout" | "interrupted" | "oom" | "kernel_died" = ex.end;

  for await (const event of ctx.stream("for i in range(3): print(i)")) words(event);

  const process: Process = await sandbox.commands.run(["python3", "-m", "http.server"], { background: true, stdin: true });
  const result: ExecResult = await sandbox.commands.run("ls", { onStdout: (text) => text.length });
  const one: Sandbox = await sandbox.fork({ metadata: { a: "b" } });
  const many: Sandbox[] = await sandbox.fork(3);
  const copies: CodeContext[] = await ctx.fork(2);
  const info: api.SandboxInfo = one.info;
  const bytes: Uint8Array = await sandbox.filesystem.readBytes("/x", { start: 0, end: 10 });
  const text: string = await sandbox.filesystem.read("/x");
  await sandbox.filesystem.write("/x", await sandbox.filesystem.readStream("/y"));
  for await (const { dir, files } of sandbox.filesystem.walk("/workspace")) console.log(dir, files.length);
  for await (const event of new Client().events({ follow: true })) console.log(event.type, event.payload["by"]);
  try {
    await Sandbox.get("sb-x");
  } catch (error) {
    if (error instanceof NotFoundError) console.log(error.hint?.length, error.code === "not_found");
  }
  // What a tool gives its model: always a string, with the chart beside it.
  const [answer, picture]: [string, string | undefined] = [ex.results?.[0]?.html ?? ex.text ?? ex.stdout, ex.png];
  const agent = new Agent("openai:gpt-4o", { limits: { maxTurns: 3 } });
  const run: AgentRun = await agent.run("add", { files: ["a.csv"], onEvent: (event: AgentEvent) => event.outcome?.end });
  const copied: Copied = await sandbox.filesystem.uploadDir("here", "/there", { onProgress: ({ files }) => files + 1 });
  const order = tool({
    name: "order",
    parameters: {
      type: "object",
      properties: { number: { type: "integer" }, goods: { type: "array", items: { type: "string" } }, currency: { enum: ["EUR", "USD"] }, note: { type: "string" } },
      required: ["number", "goods", "currency"],
    },
    execute: ({ number, goods, currency, note }, { signal }) => {
      const exact: [number, string[], "EUR" | "USD", string | undefined] = [number, goods, currency, note];
      return signal.aborted ? undefined : exact;
    },
  });
  const date = tool({ name: "date", parameters: dates, execute: async ({ at }) => at.getTime() });
  await Sandbox.create({ tools: [order, { ns: [date] }, "declared"], toolPolicy: { approve: "risky" } });
  await sandbox.tools.set([tool({ name: "none", execute: () => 1 })]);
  const seen: Observation = await pythonTool(sandbox, { showFigures: true }).execute({ code: "1" }, { abortSignal: undefined });
  const told: string = await langchain.pythonTool(ctx, { onFigure: ({ mime, base64 }) => [mime, base64] }).invoke({ code: seen.text });
  console.log(told, seen.figures[0]?.base64, seen.end === "failed");
  console.log(answer, picture, run.answer?.length, copied.leftOut.join());
  console.log(chart, end, process.pid, result.exitCode, many.length, copies.length, info.memory_mb, bytes.length, text);
}

declare const dates: StandardSchema<{ at: Date }>;

/** The type of an event says which fields it has. */
function words(event: CellEvent): string {
  switch (event.type) {
    case "stdout":
    case "stderr":
      return event.text;
    case "result":
      return event.result.text ?? "";
    case "started":
      return event.executionId;
    case "input_request":
      return event.prompt;
    case "gap":
      return `${event.dropped} bytes of ${event.stream}`;
    case "end":
      return event.execution.end;
  }
}

export async function refused(sandbox: Sandbox, ctx: CodeContext): Promise<void> {
  // @ts-expect-error an option that there is not
  await Sandbox.create({ template: "base", memory: 5 });
  // @ts-expect-error seconds are a number
  await ctx.runCode("1", { timeoutSeconds: "5" });
  // @ts-expect-error one copy is no list
  const [none] = await sandbox.fork();
  // @ts-expect-error standard input that stays open needs the background
  await sandbox.commands.run("cat", { stdin: true });
  // @ts-expect-error a command is no number
  await sandbox.exec(5);
  // @ts-expect-error what is not there may be undefined
  const png: string = (await ctx.runCode("1")).png;
  // @ts-expect-error so many of what?
  new Agent({ limits: { turns: 3 } });
  // @ts-expect-error states have names
  await Sandbox.list({ status: "runing" });
  // @ts-expect-error a name that the schema has not
  tool({ name: "x", parameters: { type: "object", properties: { a: { type: "string" } } }, execute: ({ b }) => b });
  // @ts-expect-error a function says nothing of its arguments
  await sandbox.tools.set([(a: number) => a]);
  // @ts-expect-error a cell is text
  await langchain.pythonTool(sandbox).invoke({ code: 1 });
  // @ts-expect-error the name is the one among the tools
  pythonTool(sandbox, { name: "python" });
  // @ts-expect-error no session
  pythonTool(new Client());
  console.log(none, png);
}
