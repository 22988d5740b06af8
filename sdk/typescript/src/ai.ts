/**
 * Vercel's AI SDK: a tool whose result is text for the model, and all of it for the program. It imports nothing of the AI SDK,
 * whose tools are plain objects.
 *
 * ```ts
 * const { text } = await generateText({ model, tools: { run_python: pythonTool(sandbox) }, stopWhen: stepCountIs(12), prompt });
 * ```
 */

import { describe, Interpreter, SCHEMA, type Figure, type Observation, type PythonToolOptions as AnyToolOptions, type Session } from "./observation.js";

export type { Figure, Observation, Session };

/** What the tool is to be. Its name is the one that it has among `tools`. */
export interface PythonToolOptions extends Omit<AnyToolOptions, "name"> {
  /**
   * Show the model its figures, as files in the tool's result: for models that see, behind APIs that take pictures there, such
   * as Anthropic's, Google's and OpenAI's Responses. Chat completions don't. Default: false.
   */
  showFigures?: boolean | undefined;
}

/** What the model writes for a call. */
export interface PythonInput {
  /** A cell. */
  code: string;
}

/** The schema of the input: see https://standardschema.dev. */
export interface PythonInputSchema {
  /** What the libraries agreed on. */
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: "pandastack";
    readonly types?: { readonly input: unknown; readonly output: PythonInput };
    readonly validate: (value: unknown) => { readonly value: PythonInput } | { readonly issues: readonly { readonly message: string }[] };
    readonly jsonSchema: { readonly input: () => Record<string, unknown>; readonly output: () => Record<string, unknown> };
  };
}

/** What the model is told. */
export type PythonModelOutput =
  | { type: "text"; value: string }
  | { type: "content"; value: ({ type: "text"; text: string } | { type: "file"; mediaType: string; data: { type: "data"; data: string } })[] };

/** The tool. */
export interface PythonTool {
  /** What the model is told of it. */
  readonly description: string;
  /** What it takes. */
  readonly inputSchema: PythonInputSchema;
  /** Runs a cell. What goes wrong in it, or with its sandbox, is in the result and not thrown. */
  execute(input: PythonInput, options: { readonly abortSignal?: AbortSignal | undefined }): Promise<Observation>;
  /** What of the result goes to the model. */
  toModelOutput(options: { readonly output: Observation }): PythonModelOutput;
}

const json = (): Record<string, unknown> => structuredClone(SCHEMA);
const inputSchema: PythonInputSchema = {
  "~standard": {
    version: 1,
    vendor: "pandastack",
    validate: (value) => {
      const { code } = (value ?? {}) as { code?: unknown };
      return typeof code === "string" ? { value: { code } } : { issues: [{ message: 'the arguments must be {"code": "…"}, an object with one string' }] };
    },
    jsonSchema: { input: json, output: json },
  },
};

/**
 * A tool that runs Python in a sandbox, with state from call to call. Its output, for your program, is an `Observation`; the
 * model is told its text. An `abortSignal` interrupts the cell.
 *
 * @param session a `Sandbox`, whose interpreter "default" is used, or a `CodeContext`.
 */
export function pythonTool(session: Session, options: PythonToolOptions = {}): PythonTool {
  const interpreter = new Interpreter(session, options);
  const { description, showFigures = false } = options;
  return {
    description: description ?? describe(showFigures),
    inputSchema,
    execute: ({ code }, { abortSignal }) => interpreter.run(code, abortSignal),
    toModelOutput: ({ output }) => {
      if (output === undefined) throw new Error("@pandastack/sdk/ai is for ai 7, and the one that is installed calls tools otherwise: npm install ai@7");
      const shown = showFigures ? output.figures.filter(({ mime }) => mime !== "image/svg+xml") : []; // models read no SVG
      if (shown.length === 0) return { type: "text", value: output.text };
      const files = shown.map(({ mime, base64 }) => ({ type: "file" as const, mediaType: mime, data: { type: "data" as const, data: base64 } }));
      return { type: "content", value: [{ type: "text", text: output.text }, ...files] };
    },
  };
}
