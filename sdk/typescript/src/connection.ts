/** Calls of the API over the platform's fetch, and what to do when the connection breaks. */

import { streamsBodies, type Endpoint } from "./config.js";
import { CapacityError, errorFrom, errorFromEvent, isObject, NetworkError, NotFoundError, PandaStackError, ServerError } from "./errors.js";
import { EventDecoder, type RawEvent } from "./events.js";
import { VERSION } from "./version.js";

/** What every call takes: a signal that ends it. The call then throws the signal's reason. */
export interface CallOptions {
  /** Ends the call. What it has started in the sandbox goes its own way: see there. */
  signal?: AbortSignal | undefined;
}

/** Data for a file or for a command's input. Streams are sent as they are read, so a call with one is never repeated. */
export type Content = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array | string>;

/** How long an ordinary call may stay without an answer. */
export const ANSWER_SECONDS = 30;
/** How long a stream may be silent; the server sends a comment every 15 s. */
export const QUIET_SECONDS = 60;
/** Runtimes give up an answer after five minutes, whatever they are told: longer ones are asked for again before. */
export const LONGEST_ANSWER_SECONDS = 240;
/** Beyond a deadline: interrupt, terminate, kill, a new interpreter. */
export const MARGIN_SECONDS = 20;

/** One call. */
export interface Call {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** Behind the endpoint's "/v1", encoded. */
  readonly path: string;
  /** In order; what is undefined is left out, bytes are those of a name that is not UTF-8. */
  readonly query?: readonly (readonly [string, string | Uint8Array | undefined])[];
  /** Sent as JSON. */
  readonly json?: object | undefined;
  /** Sent as it is, instead. */
  readonly content?: Content;
  /** How long the server may be silent. Default: as long as the client says. */
  readonly quietSeconds?: number;
  /** Nothing is lost or done twice when it is sent again after a broken connection. */
  readonly repeatable?: boolean;
  /** Words like "timeout" in a 5xx answer mean the deadline. */
  readonly runsCode?: boolean;
  /** The type of the answer. Default: JSON. */
  readonly accept?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
}

const FIRST_DELAY = 0.05;
const LONGEST_DELAY = 1;
const FIRST_CALL_SECONDS = 10; // of a client whose server has never answered: it may be something else that listens there

/** Growing pauses from the first failure on, until a bound has passed. */
class Backoff {
  #since: number | undefined;
  #delay = FIRST_DELAY;

  constructor(readonly limit: number) {}

  /** Seconds to sleep before another try, undefined when it is time to give up. */
  pause(): number | undefined {
    this.#since ??= performance.now();
    if (performance.now() - this.#since >= this.limit * 1000) return undefined;
    const delay = this.#delay;
    this.#delay = Math.min(2 * delay, LONGEST_DELAY);
    return delay;
  }

  /** There was an answer: the next failure starts a new count. */
  reset(): void {
    this.#since = undefined;
    this.#delay = FIRST_DELAY;
  }
}

const LONGEST_WAIT = 2; // that a server may ask for and get
const THROTTLE_SECONDS = 30; // that a call waits in all

/**
 * When to send again what was refused only because there were too many calls in a second. The server says so before it
 * does anything. Other limits (sandboxes, contexts, processes) are the caller's to wait for: their Retry-After is longer.
 */
class Throttle {
  readonly #began = performance.now();

  constructor(readonly resendable: boolean) {}

  /** Seconds to sleep before another try, undefined when there should be none. */
  pause(error: PandaStackError): number | undefined {
    const wait = error.retryAfter;
    if (error.statusCode !== 429 || !this.resendable || wait === undefined || wait <= 0 || wait > LONGEST_WAIT) return undefined;
    if (performance.now() - this.#began + wait * 1000 > THROTTLE_SECONDS * 1000) return undefined;
    return wait * (1 + Math.random() / 2); // not all at once
  }
}

/** A signal that comes when the caller's does, or when nothing was heard for too long. */
class Patience {
  readonly #controller = new AbortController();
  #ms: number;
  readonly #given: AbortSignal | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #over = false;
  timedOut = false;

  constructor(seconds: number, given: AbortSignal | undefined) {
    this.#ms = Math.min(seconds * 1000, 2 ** 31 - 1);
    this.#given = given;
    given?.addEventListener("abort", this.#stop, { once: true });
    if (given?.aborted) this.#stop();
    this.renew();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  readonly #stop = () => this.#controller.abort(this.#given?.reason);

  /** Something was heard, or taken. */
  renew(): void {
    this.hold();
    if (this.#over) return;
    this.#timer = setTimeout(() => {
      this.timedOut = true;
      this.#controller.abort();
    }, this.#ms);
  }

  /** So many bytes are sent at once, and nothing says how far they are: they have a second for each 128 KiB. */
  sends(bytes: number): void {
    this.#ms = Math.min(this.#ms + bytes / 131.072, 2 ** 31 - 1);
    this.renew();
  }

  /** Nobody is waiting. */
  hold(): void {
    clearTimeout(this.#timer);
  }

  end(): void {
    this.#over = true;
    this.hold();
    this.#given?.removeEventListener("abort", this.#stop);
  }
}

/** An answer that was read whole. */
export class Answer {
  constructor(
    readonly status: number,
    readonly headers: Headers,
    readonly bytes: Uint8Array<ArrayBuffer>,
  ) {}

  /** Whether it is a success. Status 0 is how a browser shows a redirect that is not followed. */
  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  text(): string {
    return new TextDecoder().decode(this.bytes);
  }

  /** Its JSON, undefined when it has no body. */
  json(): unknown {
    if (this.bytes.length === 0) return undefined;
    const text = this.text();
    try {
      return JSON.parse(text);
    } catch {
      throw new ServerError(`the answer is no JSON: ${JSON.stringify(text.slice(0, 200))}`, {
        statusCode: this.status,
        hint: "is this a PandaStack server? Look at apiUrl",
      });
    }
  }

  /** Its JSON object. */
  object<T extends object = Record<string, unknown>>(): T {
    const decoded = this.json();
    if (!isObject(decoded)) throw new ServerError(`the answer is no JSON object: ${JSON.stringify(this.text().slice(0, 200))}`, { statusCode: this.status });
    return decoded as T;
  }

  /** A bare array, or the array under one of these names. */
  items<T>(...names: string[]): T[] {
    let decoded = this.json() ?? [];
    if (isObject(decoded)) {
      const found = decoded;
      decoded = [...names, "items"].map((name) => found[name]).find(Array.isArray) ?? decoded;
    }
    if (!Array.isArray(decoded)) throw new ServerError(`the answer is no JSON array: ${JSON.stringify(this.text().slice(0, 200))}`, { statusCode: this.status });
    return decoded as T[];
  }
}

/** An answer whose body comes in pieces. Read it, or close it. */
export class StreamAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly #body: ReadableStreamDefaultReader<Uint8Array> | undefined;
  #open = true;

  constructor(
    response: Response,
    readonly patience: Patience,
    readonly describe: (error: unknown) => unknown,
  ) {
    this.status = response.status;
    this.headers = response.headers;
    this.#body = response.body?.getReader();
  }

  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  /** The body as it comes. Throws a NetworkError when it breaks. */
  async *pieces(): AsyncGenerator<Uint8Array, void, undefined> {
    try {
      while (this.#body !== undefined) {
        const piece = await this.#next(this.#body);
        if (piece === undefined) return;
        yield piece;
      }
    } finally {
      this.close();
    }
  }

  async #next(body: ReadableStreamDefaultReader<Uint8Array>): Promise<Uint8Array | undefined> {
    this.patience.renew();
    try {
      const { done, value } = await body.read();
      if (done) this.#open = false;
      return value;
    } catch (error) {
      this.#open = false;
      throw this.describe(error);
    } finally {
      this.patience.hold();
    }
  }

  /** Lets go of the connection. */
  close(): void {
    this.patience.end();
    if (!this.#open) return;
    this.#open = false;
    this.#body?.cancel().catch(() => undefined); // it is gone either way
  }

  async whole(): Promise<Answer> {
    const pieces: Uint8Array[] = [];
    for await (const piece of this.pieces()) pieces.push(piece);
    return new Answer(this.status, this.headers, joined(pieces));
  }
}

/** Pieces as one. */
export function joined(pieces: Uint8Array[]): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

/** The events of a stream that can be taken up again where it broke. */
export interface Following<E> {
  /** Opens the stream. */
  readonly first: Call;
  /** Goes on behind a number. */
  readonly again: (seq: number) => Call;
  /** What an event is, undefined for one to leave out. */
  readonly read: (event: RawEvent) => E | undefined;
  /** The number of the last event that there was before. */
  readonly after?: number;
  /** Why a first connection, which was another call, has failed already. */
  readonly broken?: NetworkError | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A server and the key for it. */
export class Connection {
  #reached = false; // the server was there once: a refused connection may be a restart

  constructor(
    readonly endpoint: Endpoint,
    readonly answerSeconds: number,
    readonly reconnectSeconds: number,
    readonly fetch: typeof globalThis.fetch,
  ) {}

  /**
   * The answer to a call; a status of 400 or more throws. A call that can't have reached the server, or may be repeated,
   * is sent again for a while; so is one that came too soon after others.
   */
  async send(call: Call): Promise<Answer> {
    const [backoff, throttle] = [this.#backoff(), new Throttle(isResendable(call))];
    for (;;) {
      try {
        const answer = await (await this.#open(call)).whole();
        this.#reached = true;
        if (answer.ok) return answer;
        await this.#hold(throttle, refusal(answer, call), call.signal);
      } catch (error) {
        if (!(error instanceof NetworkError)) throw error;
        await this.#wait(backoff, error, call.repeatable ?? false, call.signal);
      }
    }
  }

  /** The answer to a call as it comes; a status of 400 or more throws. */
  async stream(call: Call): Promise<StreamAnswer> {
    const throttle = new Throttle(isResendable(call));
    for (;;) {
      const answer = await this.#open(call);
      this.#reached = true;
      if (answer.ok) return answer;
      await this.#hold(throttle, refusal(await answer.whole(), call), call.signal);
    }
  }

  /** The events of one connection, in the bundles in which they came. */
  async *events(call: Call): AsyncGenerator<RawEvent, void, undefined> {
    const answer = await this.stream({ quietSeconds: QUIET_SECONDS, accept: "text/event-stream", ...call });
    const decoder = new EventDecoder();
    for await (const piece of answer.pieces()) {
      for (const event of decoded(decoder, piece)) {
        if (event.name === "error") throw errorFromEvent(event.data);
        yield event;
      }
    }
  }

  /** Events without a gap over broken connections, until the last of them. */
  async *follow<E extends { readonly type: string }>(following: Following<E>): AsyncGenerator<E, void, undefined> {
    const { first, again, read, after = 0, broken, signal } = following;
    const backoff = this.#backoff();
    let seen = after;
    let call = first;
    if (broken !== undefined) {
      await this.#wait(backoff, broken, true, signal);
      call = again(seen);
    }
    for (;;) {
      let lost: PandaStackError;
      try {
        for await (const raw of this.events({ ...call, signal })) {
          if (raw.id !== undefined && raw.id <= seen) continue;
          seen = raw.id ?? seen;
          backoff.reset();
          const event = read(raw);
          if (event === undefined) continue;
          yield event;
          if (event.type === "end" || event.type === "exit") return;
        }
        lost = new NetworkError("the stream ended before its last event");
      } catch (error) {
        if (error instanceof NotFoundError && call !== first && seen === after) {
          call = first; // the first request never got there; it may be sent again
          continue;
        }
        const notReady = error instanceof CapacityError && call !== first; // the server is there but not ready yet
        if (!(error instanceof NetworkError) && !notReady) throw error;
        lost = error;
      }
      await this.#wait(backoff, lost, true, signal);
      call = again(seen);
    }
  }

  /**
   * What `read` makes of a stream's events, over broken connections, until the server ends it. A stream that has a last
   * event is not over before that: then its end was a break, too.
   */
  async *stayOn<T>(call: Call, read: (event: RawEvent) => T, isLast?: (value: T) => boolean): AsyncGenerator<T, void, undefined> {
    const backoff = this.#backoff();
    let seen: number | undefined;
    for (;;) {
      try {
        const headers = seen === undefined ? {} : { "Last-Event-ID": String(seen) };
        for await (const event of this.events({ ...call, headers })) {
          seen = event.id ?? seen;
          backoff.reset();
          const value = read(event);
          yield value;
          if (isLast?.(value)) return;
        }
        if (isLast === undefined) return;
        throw new NetworkError("the stream ended before its last event");
      } catch (error) {
        const notReady = error instanceof CapacityError && seen !== undefined; // the server is there but not ready yet
        if (!(error instanceof NetworkError) && !notReady) throw error;
        await this.#wait(backoff, error, true, call.signal);
      }
    }
  }

  async #open(call: Call): Promise<StreamAnswer> {
    const own: Record<string, string> = { Accept: call.accept ?? "application/json", ...call.headers };
    const ours = new Set(["content-type", ...Object.keys(own).map((name) => name.toLowerCase())]);
    const headers = Object.fromEntries(Object.entries(this.endpoint.headers ?? {}).filter(([name]) => !ours.has(name.toLowerCase())));
    Object.assign(headers, own);
    if (this.endpoint.apiKey !== undefined) headers["Authorization"] = `Bearer ${this.endpoint.apiKey}`;
    if (streamsBodies) headers["User-Agent"] = `pandastack-typescript/${VERSION}`; // a browser has its own
    const patience = new Patience(call.quietSeconds ?? this.answerSeconds, call.signal);
    let source: Source = { body: undefined };
    const describe = (error: unknown) => this.#describe(error, call, patience, source.error?.());
    try {
      source = await bodyOf(call, headers, patience);
      const init: RequestInit & { duplex?: "half" } = { method: call.method, headers, signal: patience.signal, redirect: "manual", cache: "no-store" };
      if (source.body !== undefined) init.body = source.body;
      if (source.body instanceof ReadableStream) init.duplex = "half";
      return new StreamAnswer(await this.fetch(this.#url(call), init), patience, describe);
    } catch (error) {
      patience.end();
      throw describe(error);
    }
  }

  #url(call: Call): string {
    const query = (call.query ?? []).flatMap(([name, value]) => (value === undefined ? [] : [`${encodeURIComponent(name)}=${encoded(value)}`]));
    return this.endpoint.url + call.path + (query.length > 0 ? `?${query.join("&")}` : "");
  }

  #describe(error: unknown, call: Call, patience: Patience, source: { error: unknown } | undefined): unknown {
    if (call.signal?.aborted) return call.signal.reason;
    if (source !== undefined) return source.error;
    const where = new URL(this.endpoint.url).origin;
    if (patience.timedOut) return new NetworkError(`${where} was silent for too long`, { timedOut: true, cause: error });
    const why = reason(error);
    if (REFUSED.test(why)) {
      return new NetworkError(`can't connect: no PandaStack server answers at ${where}: ${why}`, {
        sent: false,
        hint: "start one with `pandastack serve`, or set PANDASTACK_API_URL",
        cause: error,
      });
    }
    return new NetworkError(`the connection to ${where} broke: ${why}`, { cause: error });
  }

  /** Sleeps when the server asks for fewer calls a second, or throws the error. */
  async #hold(throttle: Throttle, error: PandaStackError, signal: AbortSignal | undefined): Promise<void> {
    const pause = throttle.pause(error);
    if (pause === undefined) throw error;
    await sleep(pause, signal);
  }

  #backoff(): Backoff {
    return new Backoff(this.#reached ? this.reconnectSeconds : Math.min(this.reconnectSeconds, FIRST_CALL_SECONDS));
  }

  /** Sleeps before another try, or throws the error when there should be none. */
  async #wait(backoff: Backoff, error: PandaStackError, again: boolean, signal: AbortSignal | undefined): Promise<void> {
    if (error instanceof NetworkError && !error.sent) again = this.#reached;
    else this.#reached = true; // something was there
    const pause = again ? backoff.pause() : undefined;
    if (pause === undefined) throw error;
    await sleep(pause, signal);
  }
}

/** What runtimes say of a connection that was never made. */
const REFUSED = /ECONNREFUSED|ConnectionRefused|Connection refused|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT|tcp connect error|dns error|Unable to connect/;

/** The words of an error and of those behind it. */
function reason(error: unknown): string {
  const said: string[] = [];
  for (let at = error, depth = 0; at !== undefined && at !== null && depth < 4; depth++) {
    const { message, code, cause } = at as { message?: unknown; code?: unknown; cause?: unknown };
    if (typeof message === "string" && message !== "" && message !== "fetch failed") said.push(message);
    if (typeof code === "string" && !said.some((words) => words.includes(code))) said.push(code);
    at = cause;
  }
  return said.join(": ") || String(error);
}

function refusal(answer: Answer, call: Call): PandaStackError {
  if (answer.status >= 400) return errorFrom(answer.status, answer.headers, answer.text(), call.runsCode ?? false);
  const to = answer.headers.get("location");
  return new ServerError(`the server redirects${to === null ? "" : ` to ${to}`}, and a key is not carried there`, {
    statusCode: answer.status,
    hint: "set apiUrl to the address it redirects to",
  });
}

function decoded(decoder: EventDecoder, piece: Uint8Array): RawEvent[] {
  try {
    return [...decoder.feed(piece)];
  } catch (error) {
    throw new ServerError(`the server sent an event that can't be read: ${(error as Error).message}`);
  }
}

function isResendable(call: Call): boolean {
  return call.content === undefined || !isStream(call.content);
}

function isStream(content: Content): content is ReadableStream<Uint8Array> | AsyncIterable<Uint8Array | string> {
  return content instanceof ReadableStream || (typeof content === "object" && Symbol.asyncIterator in content);
}

interface Source {
  readonly body: BodyInit | undefined;
  /** Why a stream could not be read, which is not the connection's fault. */
  readonly error?: () => { error: unknown } | undefined;
}

async function bodyOf(call: Call, headers: Record<string, string>, patience: Patience): Promise<Source> {
  if (call.json !== undefined) {
    headers["Content-Type"] = "application/json";
    const body = JSON.stringify(call.json);
    patience.sends(body.length);
    return { body };
  }
  const content = call.content;
  if (content === undefined) return { body: call.method === "GET" || call.method === "DELETE" ? undefined : "" };
  headers["Content-Type"] = "application/octet-stream";
  if (!isStream(content)) {
    const body = typeof content === "string" ? content : (content as Uint8Array<ArrayBuffer> | ArrayBuffer | Blob);
    patience.sends(typeof body === "string" ? body.length : body instanceof Blob ? body.size : body.byteLength);
    return { body };
  }
  let failed: { error: unknown } | undefined;
  const note = (error: unknown) => (failed = { error });
  const stream = streamOf(content, note, patience);
  if (streamsBodies) return { body: stream, error: () => failed };
  const body = await new Response(stream).blob();
  patience.sends(body.size);
  return { body, error: () => failed };
}

/** What is to be sent as a stream of bytes; text is encoded as UTF-8. */
function streamOf(
  content: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array | string>,
  failed: (error: unknown) => void,
  patience: Patience,
): ReadableStream<Uint8Array> {
  const pieces = iterate(content);
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      try {
        patience.hold(); // what came before is sent; now the caller is waited for
        const { done, value } = await pieces.next();
        patience.renew();
        if (done) controller.close();
        else controller.enqueue(typeof value === "string" ? new TextEncoder().encode(value) : value);
      } catch (error) {
        failed(error);
        throw error;
      }
    },
    async cancel() {
      await pieces.return?.();
    },
  });
}

function iterate(content: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array | string>): AsyncIterator<Uint8Array | string> {
  if (Symbol.asyncIterator in content) return content[Symbol.asyncIterator]();
  return read(content);
}

async function* read(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => undefined); // it is used up, or nobody wants the rest
  }
}

function encoded(value: string | Uint8Array): string {
  if (typeof value === "string") return encodeURIComponent(value);
  return Array.from(value, (byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");
}

/** A value as one segment of a path. */
export function segment(name: string, value: unknown): string {
  if (typeof value !== "string") throw new TypeError(`${name} must be a string, not ${typeof value}`);
  if (value === "") throw new RangeError(`${name} must not be empty`);
  return encodeURIComponent(value);
}

/** A number of seconds above 0 and finite. */
export function seconds(name: string, value: unknown): number {
  if (typeof value !== "number") throw new TypeError(`${name} must be a number of seconds, not ${typeof value}`);
  if (!Number.isFinite(value) || value <= 0) throw new RangeError(`${name} must be above 0 and finite, not ${value}`);
  return value;
}

/** A string, empty or not: the server says what it makes of an empty one. */
export function text(name: string, value: unknown): string {
  if (typeof value !== "string") throw new TypeError(`${name} must be a string, not ${value === null ? "null" : typeof value}`);
  return value;
}

/** Waits, unless the signal ends it. What is not `held` lets the program end meanwhile. */
export function sleep(secs: number, signal: AbortSignal | undefined, held = true): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = (held ? setTimeout : unheld)(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, secs * 1000);
    if (signal?.aborted) stop();
    else signal?.addEventListener("abort", stop, { once: true });
  });
}

/** A timer that lets the program end before. */
export function unheld(done: () => void, ms: number): ReturnType<typeof setTimeout> {
  const timer = setTimeout(done, ms);
  (timer as { unref?(): void }).unref?.(); // browsers' have none
  return timer;
}

/** `Symbol.asyncDispose`, which older browsers lack. */
export const asyncDispose: typeof Symbol.asyncDispose = Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose");
