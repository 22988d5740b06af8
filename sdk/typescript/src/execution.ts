/** What a cell gives back, with a `Result` for each object that it showed, and what a command does. */

import type * as api from "./api.js";

// MIME types that have an accessor of their own; the others are in Result.extra.
const NAMED = new Set([
  "text/plain",
  "text/html",
  "text/markdown",
  "text/latex",
  "image/png",
  "image/jpeg",
  "image/svg+xml",
  "application/json",
  "application/pdf",
  "application/javascript",
]);

/** One object that a cell showed: its value, a figure, or what it gave to `display`. What it lacks is undefined. */
export class Result {
  /**
   * The representations by MIME type. Every value is a string: text as it is, images and PDF in base64 without newlines,
   * JSON types as encoded JSON.
   */
  readonly data: Readonly<Record<string, string>>;
  /** True for the value of the cell's last line. */
  readonly isLastExpression: boolean;
  /** What the kernel said about the representations, such as an image's width. */
  readonly metadata: Readonly<Record<string, unknown>>;

  constructor(data: Record<string, string>, isLastExpression = false, metadata: Record<string, unknown> = {}) {
    this.data = data;
    this.isLastExpression = isLastExpression;
    this.metadata = metadata;
  }

  /** The plain text (Python's repr). A figure has none. */
  get text(): string | undefined {
    return this.data["text/plain"];
  }
  /** The HTML, for a DataFrame its `<table>`. */
  get html(): string | undefined {
    return this.data["text/html"];
  }
  /** The Markdown. */
  get markdown(): string | undefined {
    return this.data["text/markdown"];
  }
  /** The LaTeX. */
  get latex(): string | undefined {
    return this.data["text/latex"];
  }
  /** The PNG image in base64. */
  get png(): string | undefined {
    return this.data["image/png"];
  }
  /** The JPEG image in base64. */
  get jpeg(): string | undefined {
    return this.data["image/jpeg"];
  }
  /** The SVG image as XML. */
  get svg(): string | undefined {
    return this.data["image/svg+xml"];
  }
  /** The PDF in base64. */
  get pdf(): string | undefined {
    return this.data["application/pdf"];
  }
  /** The JavaScript. */
  get javascript(): string | undefined {
    return this.data["application/javascript"];
  }
  /** The JSON representation, decoded; what is no JSON as it is. */
  get json(): unknown {
    const encoded = this.data["application/json"];
    if (encoded === undefined) return undefined;
    try {
      return JSON.parse(encoded);
    } catch {
      return encoded;
    }
  }
  /** The picture: the PNG, else the JPEG (both base64), else the SVG (XML). */
  get chart(): string | undefined {
    return this.png ?? this.jpeg ?? this.svg;
  }
  /** The representations without an accessor of their own, such as plotly's, by MIME type. */
  get extra(): Record<string, string> {
    return Object.fromEntries(Object.entries(this.data).filter(([mime]) => !NAMED.has(mime)));
  }

  /**
   * Reads a bundle by MIME type, or the older {"type": mime, "data": value}.
   * @internal
   */
  static fromWire(item: Record<string, unknown>, meta?: { is_last_expression?: boolean; metadata?: Record<string, unknown> }): Result {
    const bundle = typeof item["type"] === "string" && "data" in item ? { [item["type"]]: item["data"] } : item;
    const data = Object.fromEntries(Object.entries(bundle).map(([mime, value]) => [mime, textOf(value)]));
    return new Result(data, meta?.is_last_expression ?? false, meta?.metadata ?? {});
  }
}

function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  // Notebook files keep text as a list of lines.
  return Array.isArray(value) && value.every((line) => typeof line === "string") ? value.join("") : JSON.stringify(value);
}

/** The fields of an `Execution`. */
export interface ExecutionFields {
  results: Result[];
  stdout: string;
  stderr: string;
  error?: string | undefined;
  errorName?: string | undefined;
  errorValue?: string | undefined;
  end: api.End;
  stateSurvived: boolean;
  exitCode: number;
  durationMs?: number | undefined;
  executionId?: string | undefined;
  executionCount?: number | undefined;
  truncated: boolean;
  stdoutDropped: number;
  stderrDropped: number;
  outputPath?: string | undefined;
  resultsDropped: number;
  step?: string | undefined;
}

/**
 * The outcome of a cell. What is absent is undefined.
 *
 * `stdout` and `stderr` are always strings, so `ex.stdout ?? ex.text` gives "" for a cell that is one expression and
 * prints nothing: write `ex.stdout || ex.text` to get the expression's value then.
 */
export class Execution {
  /** The last expression's value first, then what was displayed, in order; [] when nothing was shown. */
  readonly results: Result[];
  /** What was written; "" when nothing was. */
  readonly stdout: string;
  /** What was written to standard error; a traceback is in `error` only. */
  readonly stderr: string;
  /** The formatted traceback, or words for a deadline or a dead kernel; undefined when all went well. */
  readonly error: string | undefined;
  /** The exception's class. */
  readonly errorName: string | undefined;
  /** The exception's message. */
  readonly errorValue: string | undefined;
  /** How it ended: "error" when it raised, "oom" when it was killed for its memory. */
  readonly end: api.End;
  /** True when the variables are still there. */
  readonly stateSurvived: boolean;
  /** 0 when `end` is "ok", else 1. */
  readonly exitCode: number;
  /** How long it ran, in milliseconds. */
  readonly durationMs: number | undefined;
  /** The id it ran under; the same id never runs twice. */
  readonly executionId: string | undefined;
  /** The cell's number in its context. */
  readonly executionCount: number | undefined;
  /** True when output was left out. */
  readonly truncated: boolean;
  /** Bytes left out in the middle of `stdout`. */
  readonly stdoutDropped: number;
  /** Bytes left out in the middle of `stderr`. */
  readonly stderrDropped: number;
  /** The file in the sandbox that has the whole output. */
  readonly outputPath: string | undefined;
  /** Results that were left out: too many, too large, or the server held too much output at once. */
  readonly resultsDropped: number;
  /** How a cell that had to be stopped was: "interrupt", "terminate" or "kill". */
  readonly step: string | undefined;

  constructor(fields: ExecutionFields) {
    this.results = fields.results;
    this.stdout = fields.stdout;
    this.stderr = fields.stderr;
    this.error = fields.error;
    this.errorName = fields.errorName;
    this.errorValue = fields.errorValue;
    this.end = fields.end;
    this.stateSurvived = fields.stateSurvived;
    this.exitCode = fields.exitCode;
    this.durationMs = fields.durationMs;
    this.executionId = fields.executionId;
    this.executionCount = fields.executionCount;
    this.truncated = fields.truncated;
    this.stdoutDropped = fields.stdoutDropped;
    this.stderrDropped = fields.stderrDropped;
    this.outputPath = fields.outputPath;
    this.resultsDropped = fields.resultsDropped;
    this.step = fields.step;
  }

  /** The first result's plain text: the repr of the last expression. */
  get text(): string | undefined {
    return this.#first("text/plain");
  }
  /** The first PNG in base64 without newlines: the chart. */
  get png(): string | undefined {
    return this.#first("image/png");
  }
  /** The first HTML. */
  get html(): string | undefined {
    return this.#first("text/html");
  }
  /** `exitCode` by its older name. */
  get exit_code(): number {
    return this.exitCode;
  }
  /** `durationMs` by its older name. */
  get duration_ms(): number | undefined {
    return this.durationMs;
  }

  #first(mime: string): string | undefined {
    return this.results.find((result) => mime in result.data)?.data[mime];
  }

  /**
   * Reads the answer of a run. An older server's, with "exit" alone, is understood too.
   * @internal
   */
  static fromWire(body: object): Execution {
    const b: Partial<api.Execution> = body;
    const error = b.error || undefined;
    const exitCode = b.exit_code ?? b.exit ?? 0;
    return new Execution({
      results: (b.results ?? []).map((item, index) => Result.fromWire(item, b.results_meta?.[index])),
      stdout: b.stdout ?? "",
      stderr: b.stderr ?? "",
      error,
      errorName: b.error_name || undefined,
      errorValue: error && b.error_name ? b.error_value ?? "" : undefined,
      end: b.end ?? (error || exitCode ? "error" : "ok"),
      stateSurvived: b.state_survived ?? true,
      exitCode,
      durationMs: b.duration_ms,
      executionId: b.execution_id || undefined,
      executionCount: b.execution_count || undefined,
      truncated: b.truncated ?? false,
      stdoutDropped: b.stdout_dropped ?? 0,
      stderrDropped: b.stderr_dropped ?? 0,
      outputPath: b.output_path || undefined,
      resultsDropped: b.results_dropped ?? 0,
      step: b.step || undefined,
    });
  }
}

/** The fields of an `ExecResult`. */
export interface ExecResultFields {
  stdout: string;
  stderr: string;
  exitCode: number;
  durationMs?: number | undefined;
  reason: string;
  signal?: string | undefined;
  hint?: string | undefined;
  truncated: boolean;
  stdoutDropped: number;
  stderrDropped: number;
  outputPath?: string | undefined;
}

/** The outcome of a command. */
export class ExecResult {
  /** Its output. */
  readonly stdout: string;
  /** Its standard error. */
  readonly stderr: string;
  /** Its status; 128 + n when signal n ended it. */
  readonly exitCode: number;
  /** How long it ran, in milliseconds. */
  readonly durationMs: number | undefined;
  /** Why it ended: "exited", "signaled", "oom" (the sandbox ran out of memory), "killed" (through the API), "timeout". */
  readonly reason: string;
  /** The signal that ended it, such as "SIGSEGV". */
  readonly signal: string | undefined;
  /** Which limit of the sandbox is behind a bad end, in words. */
  readonly hint: string | undefined;
  /** True when output was left out. */
  readonly truncated: boolean;
  /** Bytes left out in the middle of `stdout`. */
  readonly stdoutDropped: number;
  /** Bytes left out in the middle of `stderr`. */
  readonly stderrDropped: number;
  /** The file in the sandbox that has the whole output. */
  readonly outputPath: string | undefined;

  constructor(fields: ExecResultFields) {
    this.stdout = fields.stdout;
    this.stderr = fields.stderr;
    this.exitCode = fields.exitCode;
    this.durationMs = fields.durationMs;
    this.reason = fields.reason;
    this.signal = fields.signal;
    this.hint = fields.hint;
    this.truncated = fields.truncated;
    this.stdoutDropped = fields.stdoutDropped;
    this.stderrDropped = fields.stderrDropped;
    this.outputPath = fields.outputPath;
  }

  /** `exitCode` by its older name. */
  get exit_code(): number {
    return this.exitCode;
  }
  /** `durationMs` by its older name. */
  get duration_ms(): number | undefined {
    return this.durationMs;
  }

  /** @internal */
  static fromWire(body: object): ExecResult {
    const b: Partial<api.ExecResult> = body;
    return new ExecResult({
      stdout: b.stdout ?? "",
      stderr: b.stderr ?? "",
      exitCode: b.exit_code ?? 0,
      durationMs: b.duration_ms,
      reason: b.reason || "exited",
      signal: b.signal || undefined,
      hint: b.hint || undefined,
      truncated: b.truncated ?? false,
      stdoutDropped: b.stdout_dropped ?? 0,
      stderrDropped: b.stderr_dropped ?? 0,
      outputPath: b.output_path || undefined,
    });
  }
}
