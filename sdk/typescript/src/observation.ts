/**
 * What comes of a cell that a model wrote: text for the model, figures for the program around it. All adapters of frameworks
 * run cells through `Interpreter`, so that models are told the same in each; those of the Python SDK tell it in the same words.
 */

import type * as api from "./api.js";
import { seconds, text } from "./connection.js";
import { NetworkError, NotFoundError, PandaStackError } from "./errors.js";
import type { Execution, Result } from "./execution.js";

/** The tool's name when it is given none. */
export const NAME = "run_python";
const CODE = "Python of one cell, as in a notebook: the value of the last expression is shown; !cmd and %magics work.";

// What one observation holds at most, in bytes of UTF-8. Of longer text the beginning and, which says more, the end stay.
const MAX_OUTPUT = 30_000;
const MAX_VALUE = 10_000;
const MAX_FIGURES = 8;

// The server's line, where it left out some. Code can write what begins like it, as often and as long as it likes, so no two
// attempts to find it look at the same text.
const CUT = /\n?\[\.\.\. (\d{1,15}) bytes left out[^\n[]*\.\.\.\]\n/g;
const PICTURES = ["image/png", "image/jpeg", "image/svg+xml"] as const;
const WORDS = ["text/plain", "text/markdown", "text/latex", "application/json"];

/** The one argument of the tool, as a JSON schema. */
export const SCHEMA = { type: "object", properties: { code: { type: "string", description: CODE } }, required: ["code"], additionalProperties: false } as const;

/** The description of the tool. `shown`: the model is shown the figures, too. */
export function describe(shown: boolean): string {
  const figures = shown ? "you are shown them" : "the user sees them, you do not";
  return (
    "Runs Python in a sandbox and returns what it prints, the value of the last expression, or the traceback. Variables, imports and files stay from call " +
    `to call. Draw with matplotlib, without savefig, and end with plt.show(): figures are captured, ${figures}.`
  );
}

/** A picture that a cell showed. */
export interface Figure {
  /** What it is. */
  readonly mime: (typeof PICTURES)[number];
  /** Its bytes in base64. */
  readonly base64: string;
}

/** What came of a cell. */
export interface Observation {
  /** For the model: output, values, a line for each figure, the traceback, and what to do next where the end does not say it by itself. */
  readonly text: string;
  /** The pictures that were shown, in order. */
  readonly figures: readonly Figure[];
  /** The results that have HTML, such as tables, in order; for people, and as untrusted as the code. */
  readonly html: readonly string[];
  /** How it ended: "ok" when all went well, "failed" when it could not be run. */
  readonly end: api.End | "failed";
}

/** What runs cells: a sandbox, whose interpreter "default" is used, or a code context. */
export interface Session {
  /** As of `CodeContext`. */
  runCode(code: string, options: { timeoutSeconds: number; signal?: AbortSignal | undefined }): Promise<Execution>;
  /** As of `CodeContext`. */
  interrupt?(): Promise<void>;
  /** As of `Sandbox`. */
  context?(): Promise<{ interrupt(): Promise<void> }>;
}

/** What a tool that runs cells is to be. */
export interface PythonToolOptions {
  /** What the model calls it. Default: "run_python". */
  name?: string | undefined;
  /** What the model is told of it. Default: that it runs Python, keeps its state and captures figures. */
  description?: string | undefined;
  /** The deadline of a call, in seconds. Default: 60. */
  timeoutSeconds?: number | undefined;
  /** Called with each figure; what it returns is waited for, and what it throws ends the call. */
  onFigure?: ((figure: Figure) => unknown) | undefined;
}

/** Runs the cells of a model, and turns whatever comes of them into observations. */
export class Interpreter {
  readonly #session: Session;
  readonly #timeoutSeconds: number;
  readonly #onFigure: PythonToolOptions["onFigure"];
  #last: Promise<unknown> = Promise.resolve(); // settles when the cells that were asked for have ended

  /** @throws TypeError `session` runs no cells. */
  constructor(session: Session, { timeoutSeconds = 60, onFigure }: PythonToolOptions) {
    if (typeof session?.runCode !== "function") throw new TypeError(`a session must be a Sandbox or a CodeContext, not ${session === null ? "null" : typeof session}`);
    this.#session = session;
    this.#timeoutSeconds = seconds("timeoutSeconds", timeoutSeconds);
    this.#onFigure = onFigure;
  }

  /**
   * Runs a cell. What goes wrong in it, or with its sandbox, is in the observation and not thrown.
   *
   * @param signal interrupts the cell, or keeps it from beginning when it waits behind another one of this interpreter, and the
   *   call throws its reason.
   */
  async run(code: string, signal?: AbortSignal): Promise<Observation> {
    let seen: Observation;
    const leave = await this.#turn(signal);
    try {
      seen = observe(await this.#session.runCode(text("code", code), { timeoutSeconds: this.#timeoutSeconds, signal }), this.#timeoutSeconds);
    } catch (error) {
      if (signal?.aborted) await this.#interrupt();
      if (!(error instanceof PandaStackError)) throw error;
      return failure(error);
    } finally {
      leave();
    }
    for (const figure of seen.figures) await this.#onFigure?.(figure);
    return seen;
  }

  /** Waits until the cells before have ended. The server would run one that waits there for seconds when its caller is gone. */
  async #turn(signal: AbortSignal | undefined): Promise<() => void> {
    const before = this.#last;
    let leave = () => {};
    const ended = new Promise<void>((resolve) => (leave = resolve));
    this.#last = before.then(() => ended);
    let stop = () => {};
    try {
      await new Promise<void>((resolve, reject) => {
        void before.then(() => resolve());
        stop = () => reject(signal?.reason);
        if (signal?.aborted) stop();
        signal?.addEventListener("abort", stop, { once: true });
      });
    } catch (error) {
      leave();
      throw error;
    } finally {
      signal?.removeEventListener("abort", stop);
    }
    return leave;
  }

  /** Stops what nobody waits for at once. The server does it, too, but 10 s later. */
  async #interrupt(): Promise<void> {
    try {
      const context = this.#session.interrupt === undefined ? await this.#session.context?.() : this.#session;
      await context?.interrupt?.();
    } catch (error) {
      if (!(error instanceof PandaStackError)) throw error; // the sandbox may have ended with whatever was given up
    }
  }
}

/** The observation of an outcome. `timeoutSeconds` is the deadline that the cell had, for the words about it. */
export function observe(execution: Execution, timeoutSeconds?: number): Observation {
  const [parts, figures, html]: [string[], Figure[], string[]] = [[], [], []];
  const add = (label: string, words: string, most: number) => {
    const kept = middle(trimmed(words), most);
    if (kept !== "") parts.push(parts.length > 0 || label === "stderr" || label === "error" ? `[${label}]\n${kept}` : kept);
  };
  const stdout = trimmed(execution.stdout);
  if (stdout !== "") parts.push(middle(stdout, MAX_OUTPUT));
  add("stderr", execution.stderr, MAX_OUTPUT / 3);
  // The value of the last line is what the cell ends with.
  for (const result of [...execution.results].sort((a, b) => Number(a.isLastExpression) - Number(b.isLastExpression))) {
    if (result.html !== undefined) html.push(result.html);
    const mime = PICTURES.find((kind) => kind in result.data);
    if (mime === undefined) {
      add("result", wordsOf(result), MAX_VALUE);
      continue;
    }
    const given = result.data[mime]!;
    const figure: Figure = { mime, base64: mime === "image/svg+xml" ? base64(new TextEncoder().encode(given)) : given.replace(/\s/g, "") };
    if (figure.base64.length % 4 !== 0 || !/^[A-Za-z0-9+/]+={0,2}$/.test(figure.base64)) {
      parts.push("[a figure that can't be shown: it is not base64]"); // code in a sandbox shows what it likes
      continue;
    }
    figures.push(figure);
    if (figures.length <= MAX_FIGURES) parts.push(`[figure ${figures.length}: ${sizeOf(figure)}]`);
  }
  if (figures.length > MAX_FIGURES) parts.push(`[${figures.length - MAX_FIGURES} more figures]`);
  if (execution.end === "error") add("error", execution.error ?? "", MAX_VALUE);
  if (execution.resultsDropped > 0) parts.push(`[${execution.resultsDropped} results were left out]`);
  if (execution.truncated && execution.outputPath !== undefined) parts.push(`[the whole output is in ${execution.outputPath} of the sandbox]`);
  const last = ending(execution, timeoutSeconds, parts.length > 0);
  if (last !== "") parts.push(last);
  return { text: parts.join("\n"), figures, html, end: execution.end };
}

/** What a model is told when its cell could not be run. */
export function failure(error: PandaStackError): Observation {
  let words = `The code did not run: ${error.message}`;
  if (error instanceof NotFoundError) words = "The code did not run: its sandbox has ended, and variables and files are gone. Don't try again; say so.";
  else if (error instanceof NetworkError && error.sent) {
    words = `The connection to the sandbox broke: ${error.message}. Whether the code ran is not known; look before you repeat it.`;
  }
  return { text: `[error]\n${words}`, figures: [], html: [], end: "failed" };
}

/** What a model can't know about how its cell ended, and what is left of its state. In the words of our own agents. */
function ending({ end, stateSurvived }: Execution, timeoutSeconds: number | undefined, printed: boolean): string {
  if (end === "ok") return printed ? "" : "The cell ran and printed nothing. To see a value, print it or put it on the last line.";
  const left = stateSurvived
    ? "Variables, imports and functions are still there."
    : "All variables, imports and functions are lost; files are still there. Import and load again what you need.";
  const above = printed ? " What it printed until then is above." : "";
  switch (end) {
    case "error":
      return stateSurvived ? "" : `[${left}]`;
    case "timeout": {
      const how = stateSurvived ? "was interrupted at" : "did not react to an interrupt and was ended after";
      const deadline = timeoutSeconds === undefined ? "its deadline" : `its deadline of ${timeoutSeconds} seconds`;
      return `[deadline] The cell ${how} ${deadline}.${above} ${left} Make it do less at a time.`;
    }
    case "oom":
      return `[out of memory] The cell used more memory than there is, and its interpreter was ended.${above} ${left} Work on less at a time.`;
    case "interrupted":
      return `[interrupted] The cell was interrupted.${above} ${left}`;
    default:
      return `[interpreter died] The interpreter ended while the cell ran.${above} ${left}`;
  }
}

function wordsOf(result: Result): string {
  const mime = WORDS.find((kind) => kind in result.data);
  return mime === undefined ? `a value of the types ${Object.keys(result.data).join(", ")}, which has no text` : result.data[mime]!;
}

function sizeOf({ mime, base64: data }: Figure): string {
  const kind = mime.slice("image/".length).replace("+xml", "").toUpperCase();
  const head = atob(data.slice(0, 32)); // 24 bytes
  if (!head.startsWith("\x89PNG\r\n\x1a\n") || head.length < 24) return kind;
  const number = (at: number) => [0, 1, 2, 3].reduce((sum, i) => sum * 256 + head.charCodeAt(at + i), 0);
  return `${kind}, ${number(16)}×${number(20)} pixels`;
}

function base64(bytes: Uint8Array): string {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

/** Without empty lines around it. No regular expression: one looks at each run of them again from each of its lines. */
function trimmed(words: string): string {
  let [from, to] = [0, words.length];
  while (from < to && words[from] === "\n") from++;
  while (to > from && words[to - 1] === "\n") to--;
  return words.slice(from, to);
}

/** Shortens a text to about `most` bytes and says how many are missing where, those that the server left out too. */
export function middle(words: string, most: number): string {
  const raw = new TextEncoder().encode(words);
  if (raw.length <= most) return words;
  const inside = (at: number) => (raw[at]! & 0xc0) === 0x80; // in the middle of a letter
  let [from, to] = [Math.floor(most / 5), raw.length - Math.ceil((most * 4) / 5)];
  while (inside(from)) from--;
  while (inside(to)) to++;
  const decode = (part: Uint8Array) => new TextDecoder().decode(part);
  const cut = decode(raw.subarray(from, to));
  const before = [...cut.matchAll(CUT)].reduce((sum, [line, count]) => sum + Number(count) - line.length, 0);
  return `${decode(raw.subarray(0, from))}\n[... ${to - from + before} bytes left out ...]\n${decode(raw.subarray(to))}`;
}
