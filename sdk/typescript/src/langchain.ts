/**
 * LangChain and LangGraph.js: a tool whose content is text for the model, and whose artifact holds the figures.
 *
 * ```ts
 * const agent = createAgent({ model, tools: [pythonTool(sandbox)] });
 * ```
 */

import * as messages from "@langchain/core/messages";
import * as tools from "@langchain/core/tools";
import { describe, Interpreter, NAME, SCHEMA, type Figure, type Observation, type PythonToolOptions, type Session } from "./observation.js";

export type { Figure, PythonToolOptions, Session };

/** What a message of the tool has beside its text. */
export interface PythonArtifact {
  /** The figures, as content blocks of LangChain. */
  figures: { type: "image"; mimeType: Figure["mime"]; data: string }[];
  /** The results that have HTML, such as tables; for people, and as untrusted as the code. */
  html: string[];
  /** How the cell ended, as of an `Execution`, or "failed" when it could not be run. */
  end: Observation["end"];
}

/** The tool. Invoked with a call of a model it gives a `ToolMessage`, with bare arguments its text. */
export type PythonTool = tools.DynamicStructuredTool<typeof SCHEMA, { code: string }, { code: string }, string>;

/**
 * A tool that runs Python in a sandbox, with state from call to call. The content of its messages is text, their `artifact` a
 * `PythonArtifact`. A call that is aborted interrupts its cell.
 *
 * @param session a `Sandbox`, whose interpreter "default" is used, or a `CodeContext`.
 * @throws Error this version of @langchain/core is not known.
 */
export function pythonTool(session: Session, options: PythonToolOptions = {}): PythonTool {
  const interpreter = new Interpreter(session, options);
  known("DynamicStructuredTool", tools);
  const made = new tools.DynamicStructuredTool({
    name: options.name ?? NAME,
    description: options.description ?? describe(false),
    schema: SCHEMA,
    responseFormat: "content_and_artifact",
    func: async ({ code }: { code: string }, _: unknown, config?: { signal?: AbortSignal | undefined }): Promise<[string, PythonArtifact]> => {
      const { text, figures, html, end } = await interpreter.run(code, config?.signal);
      return [text, { figures: figures.map(({ mime, base64 }) => ({ type: "image", mimeType: mime, data: base64 })), html: [...html], end }];
    },
  });
  return made as unknown as PythonTool; // what its function gives is never what `invoke` gives
}

/**
 * The figures of the last calls as a message of the user, undefined when there are none. Most models take no pictures in
 * messages of tools, so it goes to the model after them: only to one that sees.
 *
 * @param state the messages so far, of which those of tools at the end are looked at.
 */
export function figuresMessage(state: readonly messages.BaseMessage[]): messages.HumanMessage | undefined {
  known("HumanMessage", messages);
  const from = state.findLastIndex((message) => message.getType() !== "tool") + 1;
  const artifacts = state.slice(from).map((message) => (message as { artifact?: Partial<PythonArtifact> }).artifact);
  const figures = artifacts.flatMap((artifact) => artifact?.figures ?? []).filter(({ mimeType }) => mimeType !== "image/svg+xml");
  if (figures.length === 0) return undefined;
  const pictures = figures.map(({ mimeType, data }) => ({ type: "image_url", image_url: { url: `data:${mimeType};base64,${data}` } }));
  return new messages.HumanMessage({ content: [{ type: "text", text: "What you have just drawn:" }, ...pictures] });
}

function known(name: string, module: object): void {
  if (typeof (module as Record<string, unknown>)[name] === "function") return;
  throw new Error(`@pandastack/sdk/langchain is for @langchain/core 1.0 and newer, and the one that is installed has no ${name}: npm install @langchain/core@1`);
}
