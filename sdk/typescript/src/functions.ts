/** What Python in a sandbox can call outside of it: functions of this program, HTTP services, MCP servers. */

import type * as api from "./api.js";
import { text } from "./connection.js";
import { isObject } from "./errors.js";
import { hasLines } from "./line.js";

/** A JSON schema. */
export type JSONSchema = { readonly [keyword: string]: unknown };

/**
 * A schema of a library that has its JSON schema: see https://standardschema.dev. Zod (4.2 and newer), Valibot, ArkType and
 * others have it.
 */
export interface StandardSchema<T = unknown> {
  /** What the libraries agreed on. */
  readonly "~standard": {
    readonly types?: { readonly input: unknown; readonly output: T } | undefined;
    readonly validate: (value: unknown) => unknown;
    readonly jsonSchema?: { readonly input: (options: { target: "draft-2020-12" }) => JSONSchema };
  };
}

/** What a JSON schema says of a type: of its names and plain types; `any` for the rest. */
export type FromSchema<S> = S extends { const: infer C } ? C
  : S extends { enum: readonly (infer E)[] } ? E
  : S extends { type: "string" } ? string
  : S extends { type: "integer" | "number" } ? number
  : S extends { type: "boolean" } ? boolean
  : S extends { type: "null" } ? null
  : S extends { type: "array"; items: infer I } ? FromSchema<I>[]
  : S extends { type: "object"; properties: infer P } ? Named<P, S extends { required: readonly (infer N)[] } ? N : never>
  : any; // eslint-disable-line @typescript-eslint/no-explicit-any
type Named<P, Required> = { -readonly [K in keyof P as K extends Required ? K : never]: FromSchema<P[K]> } & { -readonly [K in keyof P as K extends Required ? never : K]?: FromSchema<P[K]> };

/** The arguments that a function gets. */
export type Arguments<S> = S extends StandardSchema<infer T> ? T : FromSchema<S>;

/** Where a call comes from, as the sandbox says, and its end. */
export interface ToolCallInfo {
  /** Of the call. */
  readonly id: string;
  /** The sandbox whose program calls. */
  readonly sandboxId: string;
  /** The code context. */
  readonly contextId: string | undefined;
  /** The cell. */
  readonly executionId: string | undefined;
  /** Aborts when nobody waits for the result any more: the cell was interrupted, the time is up, the connection broke. */
  readonly signal: AbortSignal;
}

/** What a function of this program is as a tool. */
export interface ToolOptions<S extends JSONSchema | StandardSchema> {
  /** What Python calls it: an identifier, or "namespace.identifier". */
  name: string;
  /** What it does, for who calls it: the docstring in Python, and what a model is told. */
  description?: string | undefined;
  /** Its arguments, each with its type and a `description`: the JSON schema of an object, or a schema of a library. Default: none. */
  parameters?: S | undefined;
  /** What it gives: a JSON schema, or a schema of a library. Default: not known. */
  returns?: JSONSchema | StandardSchema | undefined;
  /** It changes what cannot be changed back: a policy that approves "risky" asks about it. */
  risky?: boolean | undefined;
  /** How long a call may take, in seconds. Default: the policy's, 60. */
  timeoutSeconds?: number | undefined;
  /**
   * Carries a call out. What it gives, or what its promise resolves to, must have a form in JSON: at most 64 MiB, no NaN.
   * What it throws, Python sees as a `ToolError`; a `kind` on it, a string, is kept.
   */
  execute(args: Arguments<S>, call: ToolCallInfo): unknown;
}

/** A function of this program that Python in a sandbox can call: see `tool`. */
export class Tool {
  /** What Python calls it. */
  readonly name: string;
  /** @internal */
  readonly wire: Omit<api.ToolFunction, "name">;
  /** @internal */
  readonly execute: (args: unknown, call: ToolCallInfo) => unknown;

  /** @internal */
  constructor(options: ToolOptions<any>) { // eslint-disable-line @typescript-eslint/no-explicit-any
    const { name, description, parameters, returns, risky, timeoutSeconds, execute } = options;
    this.name = text("name", name);
    if (typeof execute !== "function") throw new TypeError(`${name}: execute must be a function`);
    const given = { description, parameters: schemaOf(name, parameters), returns: schemaOf(name, returns), risky, timeout_seconds: timeoutSeconds };
    this.wire = Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
    this.execute = async (args, call) => execute(await made(parameters, args), call);
  }
}

/**
 * Makes a function of this program a tool, for `tools` of a create or of an agent.
 *
 * ```ts
 * const findCustomer = tool({
 *   name: "find_customer",
 *   description: "Find a customer.",
 *   parameters: { type: "object", properties: { email: { type: "string" } }, required: ["email"] },
 *   execute: ({ email }) => database.customer(email),
 * });
 * ```
 */
export function tool<const S extends JSONSchema | StandardSchema = Record<string, never>>(options: ToolOptions<S>): Tool {
  return new Tool(options);
}

/** A header that the server adds: a string, or the name of a secret that `client.secrets` keeps, and what is in front of it. */
export type ToolHeaders = { readonly [name: string]: string | { readonly ref: string; readonly prefix?: string } };

/** Where an HTTP service is. */
export interface OpenAPIOptions {
  /** Its OpenAPI 3 document, as an object; or `url`. */
  document?: object | undefined;
  /** Where the document is, as the server reaches it. */
  url?: string | undefined;
  /** The service. Default: the document's first server. */
  baseUrl?: string | undefined;
  /** Added by the server, so that nothing of a secret enters the sandbox. */
  headers?: ToolHeaders | undefined;
  /** Operations, with * for any letters. Default: all. */
  include?: readonly string[] | undefined;
}

/** An HTTP service with an OpenAPI 3 document, whose operations are functions; the server calls it. */
export class OpenAPI {
  /** @internal */
  readonly wire: api.ToolHTTP;

  /** @param name the namespace, as in `from tools import crm`. */
  constructor(
    readonly name: string,
    { document, url, baseUrl, headers, include }: OpenAPIOptions,
  ) {
    this.wire = { openapi: document, url, base_url: baseUrl, headers: headersOf(headers), include } as api.ToolHTTP;
  }
}

/** A server of the Model Context Protocol over streamable HTTP; the PandaStack server is its client. */
export class MCPServer {
  /** @internal */
  readonly wire: api.ToolMCP;

  /**
   * @param name the namespace.
   * @param url where it is, as the server reaches it.
   * @param options as for `OpenAPI`.
   */
  constructor(
    readonly name: string,
    url: string,
    { headers, include }: Pick<OpenAPIOptions, "headers" | "include"> = {},
  ) {
    this.wire = { url, headers: headersOf(headers), include } as api.ToolMCP;
  }
}

/** A tool, or several: functions, an object of namespaces to functions, services, and names that the server's settings declare. */
export type ToolSource = Tool | OpenAPI | MCPServer | string | { readonly [namespace: string]: Tool | readonly Tool[] };

/** What `tools` of a create was given, sorted. */
export class Toolset {
  readonly functions = new Map<string, Tool>();
  readonly wire: api.Tools = {};

  constructor(given: readonly ToolSource[], policy: api.ToolPolicy | undefined) {
    if (!Array.isArray(given)) throw new TypeError("tools must be an array of tool(…), OpenAPI, MCPServer and names");
    for (const item of given) this.#add(item);
    if (this.functions.size > 0 && !hasLines()) {
      throw new TypeError("functions of this program can't be tools here: this runtime has neither sockets nor WebSockets over which they would be called");
    }
    if (this.functions.size > 0) this.wire.functions = [...this.functions].map(([name, { wire }]) => ({ name, ...wire }));
    if (policy !== undefined) this.wire.policy = policy;
  }

  /** Undefined when neither is given. */
  static of(tools: readonly ToolSource[] | undefined, policy: api.ToolPolicy | undefined): Toolset | undefined {
    return tools === undefined && policy === undefined ? undefined : new Toolset(tools ?? [], policy);
  }

  #add(item: ToolSource, space = ""): void {
    if (item instanceof Tool) {
      const name = space === "" || item.name.includes(".") ? item.name : `${space}.${item.name}`;
      if (this.functions.has(name)) throw new TypeError(`there are two tools ${name}`);
      this.functions.set(name, item);
    } else if (space !== "") throw new TypeError(noTool(item));
    else if (typeof item === "string") (this.wire.use ??= []).push(item);
    else if (item instanceof OpenAPI) (this.wire.http ??= {})[item.name] = item.wire;
    else if (item instanceof MCPServer) (this.wire.mcp ??= {})[item.name] = item.wire;
    else if (isObject(item)) for (const [name, members] of Object.entries(item)) for (const member of [members].flat()) this.#add(member, name);
    else throw new TypeError(noTool(item));
  }
}

function noTool(item: unknown): string {
  if (typeof item === "function") return `${item.name || "a function"} does not say what its arguments are: give tool({ name, parameters, execute })`;
  return `a tool must be tool(…), OpenAPI, MCPServer, a name or an object of namespaces, not ${item === null ? "null" : typeof item}`;
}

function headersOf(headers: ToolHeaders | undefined): Record<string, api.ToolHeader> | undefined {
  return headers && Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, typeof value === "string" ? { value } : value]));
}

function standard(schema: unknown): StandardSchema["~standard"] | undefined {
  return (schema as StandardSchema | undefined)?.["~standard"];
}

function schemaOf(tool: string, schema: JSONSchema | StandardSchema | undefined): unknown {
  const known = standard(schema);
  if (known === undefined) return schema;
  if (known.jsonSchema === undefined) throw new TypeError(`${tool}: this version of the schema's library does not say its JSON schema: give that itself`);
  const { $schema: _, ...rest } = known.jsonSchema.input({ target: "draft-2020-12" });
  return rest;
}

/** Arguments as a schema of a library makes them. */
async function made(schema: unknown, args: unknown): Promise<unknown> {
  const outcome = (await standard(schema)?.validate(args)) as { value: unknown; issues?: readonly { message: string; path?: readonly unknown[] }[] } | undefined;
  if (outcome === undefined) return args;
  if (outcome.issues === undefined) return outcome.value;
  const words = outcome.issues.map(({ message, path }) => (path?.length ? `${path.map((at) => (isObject(at) ? at["key"] : at)).join(".")}: ${message}` : message));
  throw Object.assign(new TypeError(words.join("; ")), { kind: "invalid" });
}

/** A value as JSON. Throws a TypeError when it has no such form. */
export function dump(value: unknown): string {
  const text: string | undefined = JSON.stringify(value ?? null, function (this: Record<string, unknown>, name: string, inner: unknown) {
    const given = this[name]; // before its toJSON
    if (ArrayBuffer.isView(given) || given instanceof ArrayBuffer) throw new TypeError("bytes are no JSON: give them as base64");
    if (typeof inner === "number" && !Number.isFinite(inner)) throw new TypeError(`${inner} is no JSON`);
    if (typeof inner === "function" || typeof inner === "symbol") throw new TypeError(`a ${typeof inner} is no JSON`);
    if (inner instanceof Map) return Object.fromEntries(inner);
    return inner instanceof Set ? [...inner] : inner;
  });
  return text ?? "null"; // a toJSON gave nothing
}
