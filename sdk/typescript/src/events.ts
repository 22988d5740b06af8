/**
 * Events of running cells and processes, and how a stream of them is read and put together.
 *
 * Nothing here touches a connection: bytes go in, events and outcomes come out.
 */

import type * as api from "./api.js";
import { isObject } from "./errors.js";
import { Execution, ExecResult, Result } from "./execution.js";

/** Text that was written. */
export interface OutputEvent {
  /** Where to. */
  readonly type: "stdout" | "stderr";
  /** Its number. */
  readonly seq: number;
  /** What was written. */
  readonly text: string;
  /** Of a process: the bytes, when they are no UTF-8; `text` has replacement characters then. */
  readonly raw?: Uint8Array;
}

/** Output that was not kept: so many bytes of a stream. */
export interface GapEvent {
  /** What it is. */
  readonly type: "gap";
  /** Its number. */
  readonly seq: number;
  /** Which stream. */
  readonly stream: "stdout" | "stderr";
  /** How many bytes. */
  readonly dropped: number;
}

/**
 * An entry of the numbered output of a cell; attach with `after: seq` to go on behind it. "end" is the last one. Types
 * that this version does not know are left out.
 */
export type CellEvent =
  | { readonly type: "started"; readonly seq: number; readonly executionId: string; readonly executionCount: number }
  | OutputEvent
  | { readonly type: "result"; readonly seq: number; readonly result: Result }
  /** The cell asked for input; nobody can give it, and it gets an error. */
  | { readonly type: "input_request"; readonly seq: number; readonly prompt: string }
  | GapEvent
  /** The outcome, without the output that came before as events: `wait` puts all of it together. */
  | { readonly type: "end"; readonly seq: number; readonly execution: Execution };

/** An entry of the numbered output of a process. "exit" is the last one. */
export type ProcessEvent =
  | { readonly type: "started"; readonly seq: number; readonly pid: number }
  | OutputEvent
  | GapEvent
  /** How it ended, without the output that came before as events. */
  | { readonly type: "exit"; readonly seq: number; readonly exit: ExecResult };

/** An event as it is in the stream. */
export interface RawEvent {
  readonly name: string;
  readonly id: number | undefined;
  readonly data: Record<string, unknown>;
}

const MAX_LINE = 64 * 1024 * 1024;

/**
 * Reads server-sent events from pieces of bytes cut anywhere.
 * @internal
 */
export class EventDecoder {
  readonly #text = new TextDecoder();
  #rest: string[] = [];
  #restSize = 0;
  #name = "";
  #id: number | undefined;
  #data: string[] = [];

  /** The events that this piece completes. Throws SyntaxError for data that is no JSON object. */
  *feed(piece: Uint8Array): Generator<RawEvent> {
    const lines = this.#text.decode(piece, { stream: true }).split("\n");
    for (const [index, line] of lines.entries()) {
      this.#rest.push(line);
      this.#restSize += line.length;
      if (this.#restSize > MAX_LINE) throw new SyntaxError(`a line is longer than ${MAX_LINE} characters`);
      if (index === lines.length - 1) return;
      const whole = this.#rest.join("");
      this.#rest = [];
      this.#restSize = 0;
      const event = this.#line(whole.endsWith("\r") ? whole.slice(0, -1) : whole);
      if (event !== undefined) yield event;
    }
  }

  #line(line: string): RawEvent | undefined {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "event") this.#name = value;
    else if (name === "data") this.#data.push(value);
    else if (name === "id" && /^\d+$/.test(value)) this.#id = Number(value);
    return undefined; // a comment, or a field that we have no use for
  }

  #dispatch(): RawEvent | undefined {
    const [name, id, data] = [this.#name || "message", this.#id, this.#data];
    [this.#name, this.#id, this.#data] = ["", undefined, []];
    if (data.length === 0) return undefined;
    const body: unknown = JSON.parse(data.join("\n"));
    if (!isObject(body)) throw new SyntaxError("the data of an event is no JSON object");
    return { name, id, data: body };
  }
}

/** @internal */
export function cellEvent({ name, id, data }: RawEvent): CellEvent | undefined {
  const seq = id ?? 0;
  switch (name) {
    case "started": {
      const started = data as api.StartedEvent;
      return { type: name, seq, executionId: started.execution_id ?? "", executionCount: started.execution_count ?? 0 };
    }
    case "result": {
      const shown = data as unknown as api.ResultEvent;
      return { type: name, seq, result: Result.fromWire(shown.data, shown) };
    }
    case "input_request":
      return { type: name, seq, prompt: (data as unknown as api.InputRequestEvent).prompt };
    case "end":
      return { type: name, seq, execution: Execution.fromWire(data) };
    default:
      return outputEvent(name, seq, data);
  }
}

/** @internal */
export function processEvent({ name, id, data }: RawEvent): ProcessEvent | undefined {
  const seq = id ?? 0;
  switch (name) {
    case "started":
      return { type: name, seq, pid: (data as api.StartedEvent).pid ?? 0 };
    case "exit":
      return { type: name, seq, exit: ExecResult.fromWire(data) };
    default:
      return outputEvent(name, seq, data);
  }
}

function outputEvent(name: string, seq: number, data: Record<string, unknown>): OutputEvent | GapEvent | undefined {
  if (name === "stdout" || name === "stderr") {
    const { text, raw } = data as unknown as api.OutputEvent;
    if (!raw) return { type: name, seq, text };
    const bytes = fromBase64(raw);
    return { type: name, seq, text: new TextDecoder().decode(bytes), raw: bytes };
  }
  if (name === "gap") {
    const { stream, dropped } = data as unknown as { stream: "stdout" | "stderr"; dropped: number };
    return { type: name, seq, stream, dropped };
  }
  return undefined;
}

/** @internal */
export function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** @internal */
export function toBase64(bytes: Uint8Array): string {
  let letters = "";
  for (let at = 0; at < bytes.length; at += 0x8000) letters += String.fromCharCode(...bytes.subarray(at, at + 0x8000)); // as many as a call takes
  return btoa(letters);
}

const KEEP_HEAD = 256 * 1024; // characters of a stream kept from its start, as in the sandbox
const KEEP_TAIL = 768 * 1024; // and from its end

/** The text of one stream, its head and tail kept, what lies between counted. */
class Capture {
  #head: string[] = [];
  #headSize = 0;
  #tail: string[] = [];
  #tailSize = 0;
  dropped = 0;

  add(text: string): void {
    const room = KEEP_HEAD - this.#headSize;
    if (room > 0 && this.dropped === 0) {
      this.#head.push(text.slice(0, room));
      this.#headSize += Math.min(room, text.length);
      text = text.slice(room);
    }
    if (text === "") return;
    this.#tail.push(text);
    this.#tailSize += text.length;
    if (this.#tailSize > 2 * KEEP_TAIL) this.#cut();
  }

  /** So many bytes were left out before what follows. */
  gap(dropped: number): void {
    this.#head.push(...this.#tail);
    this.#headSize = KEEP_HEAD;
    [this.#tail, this.#tailSize] = [[], 0];
    this.dropped += dropped;
  }

  #cut(): void {
    const joined = this.#tail.join("");
    const kept = joined.slice(-KEEP_TAIL);
    this.dropped += new TextEncoder().encode(joined.slice(0, joined.length - kept.length)).length;
    [this.#tail, this.#tailSize] = [[kept], kept.length];
  }

  text(): string {
    if (this.#tailSize > KEEP_TAIL) this.#cut();
    if (this.dropped === 0) return this.#head.join("") + this.#tail.join("");
    return `${this.#head.join("")}\n[… ${this.dropped} bytes dropped …]\n${this.#tail.join("")}`;
  }
}

class Streams {
  readonly stdout = new Capture();
  readonly stderr = new Capture();

  add(event: CellEvent | ProcessEvent): void {
    if (event.type === "stdout" || event.type === "stderr") this[event.type].add(event.text);
    else if (event.type === "gap") (event.stream === "stderr" ? this.stderr : this.stdout).gap(event.dropped);
  }

  /** The fields of an outcome that say what was written. */
  over(outcome: { readonly stdoutDropped: number; readonly stderrDropped: number; readonly truncated: boolean }) {
    const [stdout, stderr] = [this.stdout.text(), this.stderr.text()];
    return {
      stdout,
      stderr,
      stdoutDropped: outcome.stdoutDropped || this.stdout.dropped,
      stderrDropped: outcome.stderrDropped || this.stderr.dropped,
      truncated: outcome.truncated || this.stdout.dropped > 0 || this.stderr.dropped > 0,
    };
  }
}

/**
 * Puts the events of a cell together into an Execution, as if it had been waited for.
 * @internal
 */
export class ExecutionAssembly {
  readonly #streams = new Streams();
  readonly #last: Result[] = [];
  readonly #displayed: Result[] = [];
  #count: number | undefined;
  execution: Execution | undefined;

  constructor(readonly executionId: string) {}

  add(event: CellEvent): void {
    this.#streams.add(event);
    if (event.type === "started") this.#count = event.executionCount;
    if (event.type === "result") (event.result.isLastExpression ? this.#last : this.#displayed).push(event.result);
    if (event.type === "end") {
      const ended = event.execution;
      this.execution = new Execution({
        ...ended,
        ...this.#streams.over(ended),
        results: [...this.#last, ...this.#displayed],
        executionId: ended.executionId ?? this.executionId,
        executionCount: ended.executionCount ?? this.#count,
      });
    }
  }
}

/**
 * Puts the events of a process together into an ExecResult.
 * @internal
 */
export class CommandAssembly {
  readonly #streams = new Streams();
  ended: ExecResult | undefined;

  add(event: ProcessEvent): void {
    this.#streams.add(event);
    if (event.type === "exit") this.ended = new ExecResult({ ...event.exit, ...this.#streams.over(event.exit) });
  }

  /** What was written so far. */
  output(): { stdout: string; stderr: string } {
    return { stdout: this.#streams.stdout.text(), stderr: this.#streams.stderr.text() };
  }
}
