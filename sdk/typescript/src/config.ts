/**
 * Where the server is and which key to show it. The only module that reads the environment and the configuration file;
 * a browser has neither.
 */

const DEFAULT_API_URL = "http://127.0.0.1:8080";
const SYSTEM_CONFIG = "/etc/pandastack/client.json"; // of the daemon of a whole machine, for who has no file of their own

/** A server, and the key for it. */
export interface Endpoint {
  /** The address with the path that stands before each route; ends in "/v1". */
  readonly url: string;
  readonly apiKey: string | undefined;
  /** Of the caller's, for what stands before the server. */
  readonly headers?: Readonly<Record<string, string>>;
}

const HEADER = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const OURS = new Set(["authorization", "host", "connection", "upgrade", "content-length", "transfer-encoding", "user-agent"]);

/** Headers of the caller's, checked. */
export function checkedHeaders(given: Record<string, string>): Record<string, string> {
  for (const [name, value] of Object.entries(given)) {
    if (!HEADER.test(name) || OURS.has(name.toLowerCase())) throw new TypeError(`headers can't have ${JSON.stringify(name)}: it is no header, or one that is the SDK's own`);
    if (typeof value !== "string" || !/^[\x20-\x7e]*$/.test(value)) throw new TypeError(`the value of ${name} in headers must be printable ASCII`);
  }
  return { ...given };
}

/** The part of Node's process that is used here. Bun and Deno have it too, a browser does not. */
interface Process {
  readonly platform?: string;
  readonly env: Record<string, string | undefined>;
  getBuiltinModule?(name: string): unknown;
}

/** A path of this machine. Bytes are for names that are not UTF-8. */
export type LocalPath = string | Uint8Array;

/** What Node says of a file, with whole numbers. */
export interface LocalStat {
  readonly size: bigint;
  readonly mode: bigint;
  readonly mtimeNs: bigint;
  isFile(): boolean;
  isDirectory(): boolean;
  isSymbolicLink(): boolean;
}

/** The part of Node's fs that is used here. */
export interface LocalFiles {
  readonly constants: { readonly O_RDONLY: number; readonly O_NONBLOCK?: number; readonly O_NOFOLLOW?: number };
  readFileSync(path: LocalPath): Uint8Array;
  readFileSync(path: LocalPath, encoding: "utf8"): string;
  existsSync(path: LocalPath): boolean;
  lstatSync(path: LocalPath, options: { bigint: true; throwIfNoEntry: false }): LocalStat | undefined;
  openSync(path: LocalPath, flags: string | number, mode?: number): number;
  readSync(fd: number, data: Uint8Array, offset: number, length: number, position: null): number;
  writeSync(fd: number, data: Uint8Array): number;
  closeSync(fd: number): void;
  renameSync(from: LocalPath, to: LocalPath): void;
  rmSync(path: LocalPath, options: { force: boolean }): void;
  readdirSync(path: LocalPath, options: { encoding: "buffer" }): Uint8Array[];
  readlinkSync(path: LocalPath, options: { encoding: "buffer" }): Uint8Array;
  symlinkSync(target: LocalPath, path: LocalPath): void;
  mkdirSync(path: LocalPath, options: { recursive: true }): unknown;
  chmodSync(path: LocalPath, mode: number): void;
  utimesSync(path: LocalPath, atime: number, mtime: number): void;
  createReadStream(path: LocalPath): AsyncIterable<Uint8Array>;
}

/**
 * Node's fs where there is one. Asked for at run time, so that bundlers for browsers find nothing to resolve.
 * @internal
 */
export function localFiles(): LocalFiles {
  const fs = builtin("node:fs") as LocalFiles | undefined;
  if (fs === undefined) throw new TypeError("this runtime has no local files: use read, readBytes, readStream and write");
  return fs;
}

/**
 * Whether this machine is one where a backslash and a colon mean something in names.
 * @internal
 */
export const isWindows = process()?.platform === "win32";

/**
 * Whether requests may have a body that comes as it is read: browsers want HTTP/2 for that.
 * @internal
 */
export const streamsBodies = process() !== undefined;

function process(): Process | undefined {
  return (globalThis as { process?: Process }).process?.env === undefined ? undefined : (globalThis as { process?: Process }).process;
}

/**
 * A module of Node's, where there is one.
 * @internal
 */
export function builtin(name: string): unknown {
  return process()?.getBuiltinModule?.(name);
}

function env(name: string): string | undefined {
  try {
    return process()?.env[name] || undefined;
  } catch {
    return undefined; // Deno without --allow-env: the other sources decide
  }
}

/**
 * Settles the server and the key: argument, environment, configuration file, then the default.
 * @internal
 */
export function findEndpoint(apiUrl: string | undefined, apiKey: string | undefined): Endpoint {
  for (const [name, value] of [["apiUrl", apiUrl], ["apiKey", apiKey]] as const) {
    if (value !== undefined && typeof value !== "string") throw new TypeError(`${name} must be a string, not ${typeof value}`);
  }
  let url = apiUrl || env("PANDASTACK_API") || env("PANDASTACK_API_URL");
  let key = apiKey || env("PANDASTACK_API_KEY");
  if (url === undefined || key === undefined) {
    const saved = readConfig();
    url ??= text(saved, "api_url", "apiUrl") ?? DEFAULT_API_URL;
    key ??= text(saved, "token", "apiKey", "api_key");
  }
  return parse(url, key);
}

function readConfig(): Record<string, unknown> {
  try {
    const fs = builtin("node:fs") as LocalFiles | undefined;
    if (fs === undefined) return {};
    const base = env("XDG_CONFIG_HOME") ?? `${env("HOME") ?? (builtin("node:os") as { homedir(): string }).homedir()}/.config`;
    const own = `${base}/pandastack/config.json`;
    const loaded: unknown = JSON.parse(fs.readFileSync(fs.existsSync(own) ? own : SYSTEM_CONFIG, "utf8"));
    return typeof loaded === "object" && loaded !== null ? (loaded as Record<string, unknown>) : {};
  } catch {
    return {}; // absent, unreadable or half-written: the other sources decide
  }
}

function text(saved: Record<string, unknown>, ...names: string[]): string | undefined {
  const found = names.map((name) => saved[name]).find((value) => typeof value === "string" && value !== "");
  return found as string | undefined;
}

function parse(given: string, apiKey: string | undefined): Endpoint {
  let url: URL;
  try {
    url = new URL(given.trim());
  } catch {
    throw new TypeError(`apiUrl must look like ${DEFAULT_API_URL}, not ${JSON.stringify(given)}`);
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") throw new TypeError(`apiUrl must look like ${DEFAULT_API_URL}, not ${JSON.stringify(given)}`);
  if (url.username || url.password || url.search || url.hash) throw new TypeError("apiUrl must hold no user, password, query or fragment");
  if (apiKey !== undefined && !/^[!-~]+$/.test(apiKey)) throw new TypeError("apiKey must be printable ASCII without blanks");
  const path = url.pathname.replace(/\/+$/, "");
  return { url: url.origin + (path.endsWith("/v1") ? path : `${path}/v1`), apiKey };
}
