/**
 * The errors that calls throw, and how an answer of the server becomes one.
 *
 * A signal that aborts a call is no failure of it: the call throws the signal's own reason then.
 */

import type { Code } from "./api.js";
import type { Exploration } from "./explore.js";

/** What is known about a failure. */
export interface ErrorDetails {
  /** HTTP status of the answer. */
  statusCode?: number | undefined;
  /** The server's stable word for the kind of failure, to switch on. */
  code?: Code | (string & {}) | undefined;
  /** The next thing to do. */
  hint?: string | undefined;
  /** The request field at fault. */
  field?: string | undefined;
  /** Finds the line in the server's log. */
  requestId?: string | undefined;
  /** Seconds to wait before another try. */
  retryAfter?: number | undefined;
  /** The decoded body of the answer, or its text. */
  response?: unknown;
  /** What a command had written when it failed. */
  stdout?: string | undefined;
  /** What a command had written to standard error when it failed. */
  stderr?: string | undefined;
  /** What is behind it. */
  cause?: unknown;
}

/** The base of every error of this package. What is not known is undefined. */
export class PandaStackError extends Error {
  override name = "PandaStackError";
  /** HTTP status of the answer, undefined when there was none. */
  readonly statusCode: number | undefined;
  /** The server's stable word for the kind of failure, such as "not_found". */
  readonly code: Code | (string & {}) | undefined;
  /** The next thing to do. It is also in the message. */
  readonly hint: string | undefined;
  /** The request field at fault. */
  readonly field: string | undefined;
  /** Finds the line in the server's log. */
  readonly requestId: string | undefined;
  /** Seconds to wait before another try. */
  readonly retryAfter: number | undefined;
  /** The decoded body of the answer, or its text. */
  readonly response: unknown;
  /** What a command had written when it failed, "" otherwise. */
  readonly stdout: string;
  /** What a command had written to standard error when it failed, "" otherwise. */
  readonly stderr: string;

  constructor(message: string, details: ErrorDetails = {}) {
    super(whole(message, details), details.cause === undefined ? undefined : { cause: details.cause });
    this.statusCode = details.statusCode;
    this.code = details.code;
    this.hint = details.hint;
    this.field = details.field;
    this.requestId = details.requestId;
    this.retryAfter = details.retryAfter;
    this.response = details.response;
    this.stdout = details.stdout ?? "";
    this.stderr = details.stderr ?? "";
  }
}

function whole(message: string, { field, hint, requestId, statusCode }: ErrorDetails): string {
  const named = field !== undefined && statusCode === 400 && !message.includes(field) ? `${field}: ${message}` : message;
  const helped = hint === undefined ? named : `${named} (${hint})`;
  return requestId !== undefined && statusCode !== undefined && statusCode >= 500 ? `${helped} [request ${requestId}]` : helped;
}

/** 401 or 403: no key, a wrong key, or one that may not do this. */
export class AuthError extends PandaStackError {
  override name = "AuthError";
}

/** 404: no such sandbox, context, file, template or process. */
export class NotFoundError extends PandaStackError {
  override name = "NotFoundError";
}

/** Another 4xx: the request is at fault; `field` says where. */
export class BadRequestError extends PandaStackError {
  override name = "BadRequestError";
}

/** 409: the state forbids it, or an execution id was used again with other code. */
export class ConflictError extends BadRequestError {
  override name = "ConflictError";
}

/** 429: too many requests or sandboxes; `retryAfter` says when to try again. */
export class RateLimitError extends BadRequestError {
  override name = "RateLimitError";
}

/** 5xx: the server failed, or cannot do this (501, code "unsupported"). */
export class ServerError extends PandaStackError {
  override name = "ServerError";
}

/** 503 or 507: no room for another sandbox, or on the disk. */
export class CapacityError extends ServerError {
  override name = "CapacityError";
}

/** A command did not end within its deadline; `stdout` and `stderr` are what it had written by then. */
export class SandboxTimeout extends PandaStackError {
  override name = "SandboxTimeout";
}

/** A command run with `check` ended with a status other than 0. */
export class CommandError extends PandaStackError {
  override name = "CommandError";
  /** Its status; 128 + n when signal n ended it. */
  readonly exitCode: number;

  constructor(message: string, details: ErrorDetails & { exitCode: number }) {
    super(message, details);
    this.exitCode = details.exitCode;
  }
}

/** No candidate of `explore` succeeded, or could be chosen. */
export class ExploreError extends PandaStackError {
  override name = "ExploreError";
  /** All outcomes; the branches are gone. */
  readonly exploration: Exploration;

  constructor(message: string, exploration: Exploration) {
    super(message);
    this.exploration = exploration;
  }
}

/** The server could not be reached, or the connection broke before the answer was complete. */
export class NetworkError extends PandaStackError {
  override name = "NetworkError";
  /** False when nothing of the request can have reached the server, so that it is safe to repeat. */
  readonly sent: boolean;
  /** True when the server was silent for longer than the call allows. */
  readonly timedOut: boolean;

  constructor(message: string, details: ErrorDetails & { sent?: boolean; timedOut?: boolean } = {}) {
    super(message, details);
    this.sent = details.sent ?? true;
    this.timedOut = details.timedOut ?? false;
  }
}

/** The names that the Python SDK has for two of them. */
export { NetworkError as APIConnectionError, PandaStackError as PandastackError };

/** The status that each code travels with. */
const statusOf: Record<Code, number> = {
  invalid: 400,
  unauthenticated: 401,
  denied: 403,
  not_found: 404,
  conflict: 409,
  too_large: 413,
  rate_limited: 429,
  internal: 500,
  unsupported: 501,
  unreachable: 502,
  no_capacity: 503,
  timeout: 504,
  no_space: 507,
};

/**
 * The error that an answer with a status of 400 or more stands for.
 * @internal
 */
export function errorFrom(status: number, headers: Headers, text: string, runsCode: boolean): PandaStackError {
  let body: unknown = text === "" ? undefined : text;
  try {
    body = JSON.parse(text);
  } catch {
    // Not ours: its text is shown as it is.
  }
  const details = detailsOf(body);
  const message = details.message ?? (text.trim().slice(0, 2000) || `the server answered ${status} with no words`);
  const code = words(details.at["code"]);
  const wait = Number(headers.get("retry-after") ?? Number.NaN);
  return new (classFor(status, code, message, runsCode))(message, {
    statusCode: status,
    code,
    hint: words(details.at["hint"]) ?? (status === 401 ? "pass apiKey, or set PANDASTACK_API_KEY; `pandastack key create` makes one" : undefined),
    field: words(details.at["field"]),
    requestId: words(details.at["request_id"]) ?? headers.get("x-request-id") ?? undefined,
    retryAfter: Number.isFinite(wait) ? wait : undefined,
    response: body,
    stdout: words(details.at["stdout"]),
    stderr: words(details.at["stderr"]),
  });
}

/**
 * The error that an event "error" of a stream stands for.
 * @internal
 */
export function errorFromEvent(body: Record<string, unknown>): PandaStackError {
  const code = words(body["code"]);
  const status = (code !== undefined && statusOf[code as Code]) || 500;
  return errorFrom(status, new Headers(), JSON.stringify(body), true);
}

/** Finds the words in {"error": "…"}, {"message" | "detail": "…"}, or the nested {"error": {…}}. */
function detailsOf(body: unknown): { message: string | undefined; at: Record<string, unknown> } {
  if (!isObject(body)) return { message: undefined, at: {} };
  const nested = body["error"];
  if (isObject(nested)) {
    return { message: words(nested["message"]) ?? words(nested["error"]) ?? words(nested["detail"]) ?? words(nested["code"]), at: nested };
  }
  return { message: words(body["error"]) ?? words(body["message"]) ?? words(body["detail"]), at: body };
}

function classFor(status: number, code: string | undefined, message: string, runsCode: boolean) {
  if (status === 401 || status === 403) return AuthError;
  if (status === 404) return NotFoundError;
  if (status === 409) return ConflictError;
  if (status === 429) return RateLimitError;
  if (status < 500) return BadRequestError;
  const said = message.toLowerCase();
  const timedOut = said.includes("deadline exceeded") || (said.includes("timeout") && !said.includes("i/o timeout"));
  if (code === "timeout" || (runsCode && timedOut)) return SandboxTimeout;
  if (code === "no_capacity" || code === "no_space" || status === 503 || status === 507) return CapacityError;
  return ServerError;
}

function words(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** @internal */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
