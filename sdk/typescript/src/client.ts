/** The client: one server and one key. */

import type * as api from "./api.js";
import { checkedHeaders, findEndpoint, localFiles, type Endpoint } from "./config.js";
import { ANSWER_SECONDS, Connection, segment, type Call, type CallOptions, type Content } from "./connection.js";
import { Secrets } from "./network.js";
import { type CreateOptions, Sandbox } from "./sandbox.js";
import { content, saved, streamed } from "./streams.js";
import { Approvals } from "./tools.js";

const SNAPSHOT_SECONDS = 180; // that a server may be silent while it reads or checks one

/** Where the server is, and how patient a client is. */
export interface ClientOptions {
  /**
   * The server. "/v1" is added when missing. Default: PANDASTACK_API or PANDASTACK_API_URL, then the configuration file
   * (~/.config/pandastack/config.json), then http://127.0.0.1:8080.
   */
  apiUrl?: string | undefined;
  /** The key. Default: PANDASTACK_API_KEY, then the configuration file. */
  apiKey?: string | undefined;
  /**
   * How long an ordinary call may stay without an answer, in milliseconds. Default: 30 000. Cells, commands, creates and
   * snapshots have their own, longer times, which this does not shorten.
   */
  timeoutMs?: number | undefined;
  /** How long calls keep trying, in seconds, while a server that had answered before can't be reached. Default: 60. */
  reconnectSeconds?: number | undefined;
  /**
   * More headers for every request, as a proxy before the server asks for. They can't replace what the SDK sends itself. In a
   * browser the connections of terminals and ports do without them: a page can't set any there.
   */
  headers?: Record<string, string> | undefined;
  /** What sends requests, instead of the platform's `fetch`. */
  fetch?: typeof globalThis.fetch | undefined;
  /** The name below which ports of sandboxes are seen, where the server does not say it: see `Sandbox.previewUrl`. */
  previewHost?: string | undefined;
}

/** Which sandboxes are meant. */
export interface ListOptions extends CallOptions {
  /** Only those that carry all of these. */
  metadata?: Record<string, string> | undefined;
  /** Only those in this state. */
  status?: api.Status | undefined;
  /** Only those of this template: its name or an alias. */
  template?: string | undefined;
  /** At most so many. Default: all. */
  limit?: number | undefined;
}

/** Which events are meant. */
export interface EventsOptions extends CallOptions {
  /** So many of the last ones, at most 1000. Default: 50. */
  tail?: number | undefined;
  /** Instead, those with a higher number than this. */
  after?: number | undefined;
  /** Go on as they happen. A broken connection is taken up again where it broke. */
  follow?: boolean | undefined;
}

const clients = new Map<string, Client>();

/**
 * A connection to a PandaStack server.
 *
 * A sandbox made through `Sandbox.create` finds its client by itself; make one to talk to several servers, or for what
 * belongs to none of the sandboxes: `templates`, `tokens`, `snapshots`, `me`.
 *
 * @throws TypeError the URL is none.
 */
export class Client {
  /** The server's sandboxes. */
  readonly sandboxes: Sandboxes;
  /** What sandboxes can be made from. */
  readonly templates: Templates;
  /** API keys. */
  readonly tokens: Tokens;
  /** The snapshots that are kept. */
  readonly snapshots: Snapshots;
  /** The secrets that the server keeps. */
  readonly secrets: Secrets;
  /** Calls of tools that wait for somebody's decision. */
  readonly approvals: Approvals;
  /** The name below which ports of sandboxes are seen, where the server does not say it. */
  readonly previewHost: string;
  /** @internal */
  readonly connection: Connection;

  constructor(options: ClientOptions = {}) {
    const found = findEndpoint(options.apiUrl, options.apiKey);
    const endpoint: Endpoint = options.headers === undefined ? found : { ...found, headers: checkedHeaders(options.headers) };
    const answerSeconds = options.timeoutMs === undefined ? ANSWER_SECONDS : options.timeoutMs / 1000;
    // The platform's is looked up anew each time: tests and tools replace it.
    const fetch: typeof globalThis.fetch = options.fetch ?? ((input, init) => globalThis.fetch(input, init));
    this.connection = new Connection(endpoint, answerSeconds, options.reconnectSeconds ?? 60, fetch);
    this.previewHost = options.previewHost ?? previewHost(new URL(endpoint.url));
    this.sandboxes = new Sandboxes(this);
    this.templates = new Templates(this);
    this.tokens = new Tokens(this);
    this.snapshots = new Snapshots(this);
    this.secrets = new Secrets(this);
    this.approvals = new Approvals(this);
  }

  /**
   * The client that all sandboxes of a server and key use together.
   * @internal
   */
  static shared(options: Client | ClientOptions = {}): Client {
    if (options instanceof Client) return options;
    const { timeoutMs, reconnectSeconds, headers, fetch, previewHost } = options;
    if ([timeoutMs, reconnectSeconds, headers, fetch, previewHost].some((option) => option !== undefined)) return new Client(options);
    const { url, apiKey } = findEndpoint(options.apiUrl, options.apiKey);
    const key = `${url} ${apiKey ?? ""}`;
    const known = clients.get(key) ?? new Client({ apiUrl: url, apiKey });
    clients.set(key, known);
    return known;
  }

  /** The key, if there is one. */
  get apiKey(): string | undefined {
    return this.connection.endpoint.apiKey;
  }

  /** The server's address, with "/v1". */
  get apiUrl(): string {
    return this.connection.endpoint.url;
  }

  /**
   * Who the key belongs to.
   *
   * @throws AuthError the key is missing or wrong.
   */
  async me(options: CallOptions = {}): Promise<api.Me> {
    return (await this.connection.send({ method: "GET", path: "/me", repeatable: true, ...options })).object<api.Me>();
  }

  /** What the server is. Needs no key. */
  async version(options: CallOptions = {}): Promise<api.Version> {
    return (await this.connection.send({ method: "GET", path: "/version", repeatable: true, ...options })).object<api.Version>();
  }

  /** What happened to all sandboxes of the workspace, and to the server; the oldest first. */
  events(options: EventsOptions = {}): AsyncGenerator<api.LifeEvent, void, undefined> {
    return lifeEvents(this.connection, "/events", options);
  }
}

/** A server that does not say it is taken to be as published: below its own name, or below localhost. */
function previewHost({ hostname, port }: URL): string {
  if (hostname !== "localhost" && hostname !== "[::1]" && !hostname.startsWith("127.")) return hostname.replace(/^api\./, "");
  return port === "" ? "localhost" : `localhost:${port}`;
}

/** @internal */
export async function* lifeEvents(connection: Connection, path: string, options: EventsOptions): AsyncGenerator<api.LifeEvent, void, undefined> {
  const { tail = 50, after, follow = false, signal } = options;
  const query = [after === undefined ? (["tail", String(tail)] as const) : (["after", String(after)] as const)];
  if (!follow) {
    yield* (await connection.send({ method: "GET", path, query, repeatable: true, signal })).items<api.LifeEvent>("events");
    return;
  }
  yield* connection.stayOn({ method: "GET", path, query: [...query, ["follow", "1"]], signal }, (event) => event.data as unknown as api.LifeEvent);
}

const PAGE = 500; // sandboxes that one answer brings

/** The sandboxes of a server: `client.sandboxes`. */
export class Sandboxes {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** Makes a sandbox: see `Sandbox.create`. */
  async create(options: CreateOptions = {}): Promise<Sandbox> {
    return Sandbox.create(options, this.#client);
  }

  /**
   * The sandbox with this id.
   *
   * @throws NotFoundError there is none; the message has the nearest ids.
   */
  async get(id: string, options: CallOptions = {}): Promise<Sandbox> {
    const path = `/sandboxes/${segment("sandbox id", id)}`;
    return new Sandbox(this.#client, (await this.#client.connection.send({ method: "GET", path, repeatable: true, ...options })).object<api.SandboxInfo>());
  }

  /** The sandboxes of the key's workspace, the newest first; fetched page by page. */
  async list(options: ListOptions = {}): Promise<Sandbox[]> {
    const { metadata = {}, status, template, limit = Number.POSITIVE_INFINITY, signal } = options;
    if (!(limit >= 1)) throw new RangeError(`limit must be at least 1, not ${limit}`);
    const filters = Object.entries(metadata).map(([key, value]) => [`metadata.${key}`, value] as const);
    const found: Sandbox[] = [];
    for (let cursor: string | undefined; ; ) {
      const size = Math.min(PAGE, limit - found.length);
      const query = [...filters, ["status", status], ["template", template], ["limit", String(size)], ["cursor", cursor]] as const;
      const answer = await this.#client.connection.send({ method: "GET", path: "/sandboxes", query, repeatable: true, signal });
      found.push(...answer.items<api.SandboxInfo>("sandboxes").map((info) => new Sandbox(this.#client, info)));
      cursor = answer.headers.get("x-next-cursor") ?? undefined;
      if (cursor === undefined || found.length >= limit) return found.slice(0, limit);
    }
  }

  /**
   * Kills the sandbox with this id.
   *
   * @throws NotFoundError there is none.
   */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    const path = `/sandboxes/${segment("sandbox id", id)}`;
    await this.#client.connection.send({ method: "DELETE", path, quietSeconds: 60, repeatable: true, ...options });
  }
}

/** What sandboxes can be made from: `client.templates`. */
export class Templates {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** All templates. */
  async list(options: CallOptions = {}): Promise<api.TemplateInfo[]> {
    return (await this.#client.connection.send({ method: "GET", path: "/templates", repeatable: true, ...options })).items("templates");
  }

  /**
   * The template of this name or alias.
   *
   * @throws NotFoundError there is none; the message has the nearest names.
   */
  async get(name: string, options: CallOptions = {}): Promise<api.TemplateInfo> {
    const path = `/templates/${segment("name", name)}`;
    return (await this.#client.connection.send({ method: "GET", path, repeatable: true, ...options })).object<api.TemplateInfo>();
  }
}

/** What a key is to be. */
export interface CreateTokenOptions extends CallOptions {
  /** What it is for, in words; at most 100 bytes. */
  label?: string | undefined;
  /** What it may do: each includes those before it. Default: ["run"]. */
  scopes?: api.Scope[] | undefined;
  /** 1 to 3650. Default: when the client's own key expires, which may be never. */
  expiresInDays?: number | undefined;
  /** A moment instead of `expiresInDays`. */
  expiresAt?: Date | undefined;
  /** Whose sandboxes it reaches. Default: the client's own; another one is only for admins of the workspace "local". */
  workspace?: string | undefined;
}

/**
 * API keys: `client.tokens`. All of it needs a key with the scope "admin". A key reaches the sandboxes of its workspace and
 * no others; "read" looks, "run" also makes, uses and ends sandboxes, "admin" also manages keys.
 */
export class Tokens {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /**
   * The keys, without the secrets, oldest first. Expired ones are listed for another 30 days.
   *
   * @param options `workspace`: whose; default the client's own. "*" means all; another than the client's own is only
   *   for admins of the workspace "local".
   */
  async list(options: { workspace?: string | undefined } & CallOptions = {}): Promise<api.KeyInfo[]> {
    const { workspace, signal } = options;
    return (await this.#client.connection.send({ method: "GET", path: "/me/tokens", query: [["workspace", workspace]], repeatable: true, signal })).items("tokens");
  }

  /**
   * Makes a key that can do no more than the client's own. Its `token`, the secret, is in this answer only.
   *
   * @param options what it is to be, or its label alone.
   * @throws AuthError the client's key may not make such a key.
   * @throws BadRequestError an option is out of bounds; `field` says which.
   */
  async create(options: string | CreateTokenOptions = {}): Promise<api.NewKey> {
    const { label, scopes, expiresInDays, expiresAt, workspace, signal } = typeof options === "string" ? { label: options } : options;
    const json = { label, scopes, expires_in_days: expiresInDays, expires_at: expiresAt?.toISOString(), workspace };
    return (await this.#client.connection.send({ method: "POST", path: "/me/tokens", json, signal })).object<api.NewKey>();
  }

  /**
   * Ends a key at once, and within a second whatever is in progress with it.
   *
   * @param prefix its first 12 characters, `prefix` of the key.
   * @throws NotFoundError there is none.
   */
  async revoke(prefix: string, options: CallOptions = {}): Promise<void> {
    await this.#client.connection.send({ method: "DELETE", path: `/me/tokens/${segment("prefix", prefix)}`, repeatable: true, ...options });
  }

  /** The same as `revoke`, by the word of the other resources. */
  async delete(prefix: string, options: CallOptions = {}): Promise<void> {
    await this.revoke(prefix, options);
  }
}

function archive(id: string, options: CallOptions): Call {
  return { method: "GET", path: `/snapshots/${segment("snapshot id", id)}/export`, accept: "*/*", quietSeconds: SNAPSHOT_SECONDS, repeatable: true, ...options };
}

/** The snapshots that are kept: `client.snapshots`. */
export class Snapshots {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** All snapshots, or those of one sandbox; the newest first. */
  async list(options: { sandboxId?: string | undefined; sandbox_id?: string | undefined } & CallOptions = {}): Promise<api.Snapshot[]> {
    const { sandboxId, sandbox_id, signal } = options;
    return (await this.#client.connection.send({ method: "GET", path: "/snapshots", query: [["sandbox_id", sandboxId ?? sandbox_id]], repeatable: true, signal })).items("snapshots");
  }

  /**
   * The snapshot with this id.
   *
   * @throws NotFoundError there is none.
   */
  async get(id: string, options: CallOptions = {}): Promise<api.Snapshot> {
    return (await this.#client.connection.send({ method: "GET", path: `/snapshots/${segment("snapshot id", id)}`, repeatable: true, ...options })).object<api.Snapshot>();
  }

  /**
   * Changes what a snapshot is called and carries, and how long it is kept: `ttlSeconds` from now on, 0 until somebody
   * removes it. What is left out stays, `metadata` replaces all of it.
   *
   * @throws NotFoundError there is none.
   */
  async update(id: string, changes: { name?: string | undefined; metadata?: Record<string, string> | undefined; ttlSeconds?: number | undefined } & CallOptions): Promise<api.Snapshot> {
    const { name, metadata, ttlSeconds, signal } = changes;
    return (await this.#client.connection.send({ method: "PATCH", path: `/snapshots/${segment("snapshot id", id)}`, json: { name, metadata, ttl_seconds: ttlSeconds }, repeatable: true, signal })).object<api.Snapshot>();
  }

  /**
   * Streams a snapshot into a local file, which another server can import; it appears when it is complete. It is not
   * encrypted: the memory of the sandbox is in it, with every secret that was there. Not in browsers: use `readArchive`.
   *
   * @returns the file's size in bytes.
   * @throws NotFoundError there is no such snapshot.
   * @throws Error the local file can't be written.
   * @throws NetworkError the connection broke; nothing is left behind.
   */
  async exportArchive(id: string, local: string, options: CallOptions = {}): Promise<number> {
    localFiles(); // or it says so before anything is read
    return saved(await this.#client.connection.stream(archive(id, options)), local);
  }

  /** What `exportArchive` writes, as it comes. A connection that breaks errors the stream with a `NetworkError`. */
  async readArchive(id: string, options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    return streamed(await this.#client.connection.stream(archive(id, options)));
  }

  /**
   * Makes a snapshot of what `exportArchive` wrote, whole or not at all. What the server did not export itself for the same
   * workspace needs the scope `admin`, and a signature whose key stands in the server's setting `snapshot_trusted_keys`.
   *
   * @param source the path of a local file; bytes; or a stream.
   * @param options `name`: what to call it. Default: as it was called.
   * @throws BadRequestError it is damaged, cut off, or no archive; or too large (status 413).
   * @throws AuthError the server does not trust whoever signed it, or the key lacks the scope.
   * @throws ConflictError the template is not here, or processor or version do not fit.
   * @throws CapacityError there is no room on the disk (status 507), or too many come at once.
   */
  async importArchive(source: Content, options: { name?: string | undefined } & CallOptions = {}): Promise<api.SnapshotImport> {
    const { name, signal } = options;
    const body = content(typeof source === "string" ? localFiles().createReadStream(source) : source);
    return (await this.#client.connection.send({ method: "POST", path: "/snapshots", query: [["name", name]], content: body, quietSeconds: SNAPSHOT_SECONDS, signal })).object<api.SnapshotImport>();
  }

  /**
   * Removes a snapshot. Sandboxes that were made from it stay.
   *
   * @throws NotFoundError there is none.
   */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#client.connection.send({ method: "DELETE", path: `/snapshots/${segment("snapshot id", id)}`, quietSeconds: 60, repeatable: true, ...options });
  }
}
