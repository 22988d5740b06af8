/** Files of a sandbox. Bytes travel as bytes, in streams, at any size. */

import type * as api from "./api.js";
import type { Client } from "./client.js";
import { localFiles } from "./config.js";
import { asyncDispose, QUIET_SECONDS, segment, type Call, type CallOptions, type Content } from "./connection.js";
import { NotFoundError } from "./errors.js";
import { fromBase64 } from "./events.js";
import { content, saved, streamed } from "./streams.js";
import { packed, Tally, unpack, type Copied } from "./tar.js";

export type { Copied };

/** An absolute path. Bytes are for a name that is not UTF-8: those of `FileInfo.rawPath`. */
export type Path = string | Uint8Array;

/** What a file or folder is: what the API says, and where it is. */
export interface FileInfo extends api.FileInfo {
  /** Absolute. U+FFFD stands for bytes that are not UTF-8: then use `rawPath`. */
  readonly path: string;
  /** The path in bytes, of a name that is not UTF-8. */
  readonly rawPath?: Uint8Array;
}

/** How a file is read. */
export interface ReadOptions extends CallOptions {
  /** From this byte on; below 0 counts from the end. Default: the first. */
  start?: number | undefined;
  /** Up to this byte and without it. Default: to the end. */
  end?: number | undefined;
}

/** How a file is written. */
export interface WriteOptions extends CallOptions {
  /** Permissions, such as 0o755 or "0755". Default: those of what was there, 0o644 for a new file. */
  mode?: number | string | undefined;
  /** Add to what is there; when that breaks off, it is taken back. */
  append?: boolean | undefined;
}

/** How a folder is copied. */
export interface CopyOptions extends CallOptions {
  /** Called with what was copied so far, after every piece. */
  onProgress?: ((copied: Copied) => void) | undefined;
}

/**
 * A change of a file that is watched: what the API says, its paths in bytes beside it where they are not UTF-8.
 *
 * `type` is "create" (new at `path`, made there or moved there from outside of what is watched), "write", "close" (a
 * program that could write to it has closed it: it is whole), "rename" (`from` to `path`), "remove" (gone from `path`,
 * removed or moved outside) or "chmod" (permissions, owner or times). "overflow" says that changes may be missing here:
 * look at the files themselves. "ended" is the last one. New types may appear: skip what you don't know.
 */
export interface FileEvent extends api.FileEvent {
  /** The bytes of `path`, where they are not UTF-8. */
  readonly rawPath?: Uint8Array;
  /** The bytes of `from`, where they are not UTF-8. */
  readonly rawFrom?: Uint8Array;
}

/** How far a link goes. */
export interface LinkOptions extends CallOptions {
  /** At most 604800, which are 7 days. Default: 3600. */
  ttlSeconds?: number | undefined;
}

/** A folder and what is in it, as `walk` gives them. */
export interface WalkEntry {
  /** The folder. */
  readonly dir: string;
  /** The folders in it. */
  readonly dirs: FileInfo[];
  /** What else is in it. */
  readonly files: FileInfo[];
}

/** Files: `sandbox.filesystem`. Paths are absolute. */
export class Filesystem {
  readonly #client: Client;
  readonly #sandbox: string;

  /** @internal */
  constructor(client: Client, sandboxId: string) {
    this.#client = client;
    this.#sandbox = `/sandboxes/${segment("sandbox id", sandboxId)}`;
  }

  /**
   * The content as text, which must be UTF-8. It is given as it is: line ends and a byte order mark stay.
   *
   * @throws TypeError it is not UTF-8: use `readBytes`.
   * @throws NotFoundError there is none; the message has the nearest names.
   * @throws BadRequestError a relative path, or no file.
   */
  async read(path: Path, options: ReadOptions = {}): Promise<string> {
    const bytes = await this.readBytes(path, options);
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      throw new TypeError(`${shown(path)} is not UTF-8 text: use readBytes`);
    }
  }

  /** The same as `read`. */
  async readText(path: Path, options: ReadOptions = {}): Promise<string> {
    return this.read(path, options);
  }

  /** The content, or a part of it. For large files use `readStream` or `download`. Throws as `read`. */
  async readBytes(path: Path, options: ReadOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    return (await this.#client.connection.send({ ...this.#reading(path, options), repeatable: true })).bytes;
  }

  /**
   * The content, or a part of it, as it comes. Cancelling the stream lets go of the connection. A connection that breaks
   * errors the stream with a `NetworkError`; `start` goes on from where it was. Throws as `read`.
   */
  async readStream(path: Path, options: ReadOptions = {}): Promise<ReadableStream<Uint8Array>> {
    return streamed(await this.#client.connection.stream(this.#reading(path, options)));
  }

  /**
   * Writes a file, in one step as seen from inside; missing folders are made. What is there is replaced; through a link,
   * its target is.
   *
   * @param data text, which is encoded as UTF-8; bytes; or a stream, which is sent as it is read.
   * @throws BadRequestError a relative path, or no file is there.
   * @throws CapacityError the disk is full (status 507); what was there is unchanged.
   * @throws NetworkError the connection broke; an append may have been done.
   */
  async write(path: Path, data: Content, options: WriteOptions = {}): Promise<api.WriteResult> {
    const { mode, append = false, signal } = options;
    const call: Call = {
      ...this.#call(append ? "POST" : "PUT", "", path), // an HTTP client may send a PUT again by itself
      content: content(data),
      quietSeconds: QUIET_SECONDS,
      // What was appended is there, and a stream is used up: neither is sent twice.
      repeatable: !append && (typeof data === "string" || data instanceof Uint8Array || data instanceof ArrayBuffer || data instanceof Blob),
      signal,
    };
    const query = [...call.query!, ["mode", mode === undefined ? undefined : permissions(mode)]] as const;
    return (await this.#client.connection.send({ ...call, query })).object<api.WriteResult>();
  }

  /**
   * Streams a local file into the sandbox. Not in browsers: give `write` a `Blob` there.
   *
   * @throws Error the local file can't be read.
   * @throws CapacityError the disk is full (status 507).
   */
  async upload(local: string, remote: Path, options: WriteOptions = {}): Promise<api.WriteResult> {
    return this.write(remote, localFiles().createReadStream(local), options);
  }

  /**
   * Streams a file out of the sandbox; the local one appears when it is complete. Not in browsers: use `readStream` there.
   *
   * @returns its size in bytes.
   * @throws Error the local file can't be written.
   * @throws NotFoundError there is none.
   * @throws NetworkError the connection broke; nothing is left behind.
   */
  async download(remote: Path, local: string, options: CallOptions = {}): Promise<number> {
    localFiles(); // or it says so before anything is read
    return saved(await this.#client.connection.stream(this.#reading(remote, options)), local);
  }

  /**
   * Copies what is in a local folder into a folder of the sandbox, which is made, as one stream of any size: files, folders
   * and links, with permissions and times. What is there besides stays. Not in browsers.
   *
   * @throws Error something local can't be read.
   * @throws ConflictError a file is there where a folder should be, or the other way round.
   * @throws CapacityError the disk is full (status 507); the message says how much was written.
   */
  async uploadDir(local: string, remote: Path, options: CopyOptions = {}): Promise<Copied> {
    const { onProgress, signal } = options;
    const tally = new Tally(onProgress);
    await this.writeTar(remote, packed(local, tally), { signal });
    return tally.copied();
  }

  /**
   * Copies what is in a folder of the sandbox into a local one, which is made, as one stream of any size: files, folders and
   * links, with permissions and times. What comes is a stranger's: nothing is written outside of the local folder, and
   * links that lead out of it are left out. Not in browsers.
   *
   * @throws NotFoundError there is no such folder.
   * @throws BadRequestError it is no folder.
   * @throws Error something local can't be written.
   * @throws NetworkError the connection broke; what was copied by then stays.
   */
  async downloadDir(remote: Path, local: string, options: CopyOptions = {}): Promise<Copied> {
    const { onProgress, signal } = options;
    const tally = new Tally(onProgress);
    const answer = await this.#client.connection.stream(this.#tar(remote, { signal }));
    try {
      await unpack(answer.pieces(), local, tally);
    } finally {
      answer.close();
    }
    return tally.copied();
  }

  /**
   * All that is in a folder as a tar stream: files, folders and links, with permissions and times. A stream that is cut
   * lacks the two blocks of zeros at its end.
   *
   * @throws NotFoundError there is none.
   * @throws BadRequestError no folder.
   */
  async readTar(path: Path, options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    return streamed(await this.#client.connection.stream(this.#tar(path, options)));
  }

  /**
   * Makes what is in a tar stream in a folder, which is made; what is there besides stays.
   *
   * @throws BadRequestError a name leads out of the folder, or it is no tar stream; what was made before stays.
   * @throws CapacityError the disk is full (status 507).
   */
  async writeTar(path: Path, data: Content, options: CallOptions = {}): Promise<api.TarResult> {
    const call: Call = { ...this.#call("PUT", "/tar", path), content: content(data), quietSeconds: QUIET_SECONDS, repeatable: false, ...options };
    return (await this.#client.connection.send(call)).object<api.TarResult>();
  }

  /**
   * What is in a folder, by name, however much it is.
   *
   * @throws NotFoundError there is none.
   * @throws BadRequestError no folder.
   */
  async list(path: Path = "/", options: CallOptions = {}): Promise<FileInfo[]> {
    const entries: FileInfo[] = [];
    for (let after: Path | undefined; ; ) {
      const call = this.#call("GET", "/dir", path);
      const query = [...call.query!, ["after", after]] as const;
      const page = (await this.#client.connection.send({ ...call, query, quietSeconds: QUIET_SECONDS, ...options })).object<api.DirListing>();
      entries.push(...page.entries.map((entry) => located(entry, path)));
      const last = page.entries.at(-1);
      if (!page.truncated || last === undefined) return entries;
      after = last.raw_name === undefined ? last.name : fromBase64(last.raw_name);
    }
  }

  /**
   * What the file or folder is; a link is described itself.
   *
   * @throws NotFoundError there is none.
   */
  async stat(path: Path, options: CallOptions = {}): Promise<FileInfo> {
    const info = (await this.#client.connection.send({ ...this.#call("GET", "/stat", path), ...options })).object<api.FileInfo>();
    return typeof path === "string" ? { ...info, path } : { ...info, path: shown(path), rawPath: path };
  }

  /** Whether something is there. Throws `NotFoundError` when the sandbox is not. */
  async exists(path: Path, options: CallOptions = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
    } catch (error) {
      if (!(error instanceof NotFoundError)) throw error;
      await this.#client.connection.send({ method: "GET", path: this.#sandbox, repeatable: true, ...options });
      return false;
    }
    return true;
  }

  /** Makes a folder and those above it. Does nothing when it is there. */
  async mkdir(path: string, options: CallOptions = {}): Promise<void> {
    await this.#client.connection.send({ method: "POST", path: `${this.#sandbox}/fs/dir`, json: { path }, repeatable: true, ...options });
  }

  /**
   * Moves or renames a file or folder, a link itself; missing folders are made.
   *
   * @param target its new place itself, not a folder to move it into.
   * @param options `overwrite` replaces what is there: a file or link a file or link, a folder an empty folder.
   * @throws NotFoundError there is none.
   * @throws ConflictError the target is there, and not `overwrite`, or it can't be replaced by this.
   * @throws BadRequestError the target lies inside the folder that is moved.
   */
  async move(source: string, target: string, options: { overwrite?: boolean | undefined } & CallOptions = {}): Promise<void> {
    const { overwrite, signal } = options;
    await this.#client.connection.send({ method: "POST", path: `${this.#sandbox}/fs/move`, json: { from: source, to: target, overwrite }, signal });
  }

  /**
   * Removes a file, or a folder: an empty one, or with `recursive` any.
   *
   * @throws NotFoundError there is none.
   * @throws ConflictError the folder is not empty.
   */
  async remove(path: Path, options: { recursive?: boolean | undefined } & CallOptions = {}): Promise<void> {
    const { recursive, signal } = options;
    const call = this.#call("DELETE", "", path);
    await this.#client.connection.send({ ...call, query: [...call.query!, ["recursive", recursive ? "1" : undefined]], signal });
  }

  /** Each folder from `path` down with what is in it, a folder before those below it; links are not followed. */
  async *walk(path: Path = "/", options: CallOptions = {}): AsyncGenerator<WalkEntry, void, undefined> {
    const entries = await this.list(path, options);
    const dirs = entries.filter((entry) => entry.mode === "d");
    yield { dir: shown(path), dirs, files: entries.filter((entry) => entry.mode !== "d") };
    for (const dir of dirs) yield* this.walk(dir.rawPath ?? dir.path, options);
  }

  /**
   * Watches a file, or what is in a folder: what changes after this has returned is told, to its end.
   *
   * ```ts
   * for await (const event of await sandbox.filesystem.watch("/workspace", { recursive: true })) console.log(event.type, event.path);
   * ```
   *
   * @param path a folder, or a file, also one that programs replace. A link there is followed once; links below it are not.
   * @param options `recursive`: with all folders below it, at most 10,000. `signal` ends the watch with its reason.
   * @throws NotFoundError nothing is there.
   * @throws BadRequestError there are too many folders, or it is of the kernel's, under /proc or /sys.
   * @throws RateLimitError the sandbox has 32 watches.
   * @throws ServerError the agent in the sandbox is of an earlier version (status 501).
   */
  async watch(path: Path, options: { recursive?: boolean | undefined } & CallOptions = {}): Promise<Watch> {
    const { recursive, signal } = options;
    const call = this.#call("GET", "/watch", path);
    const query = [...call.query!, ["recursive", recursive ? "1" : undefined], ["watch_id", crypto.randomUUID()]] as const;
    const stop = new AbortController();
    const pass = () => stop.abort(signal?.reason);
    if (signal?.aborted) pass();
    else signal?.addEventListener("abort", pass, { once: true });
    const events = this.#client.connection.stayOn({ ...call, query, signal: stop.signal }, ({ data }) => fileEvent(data as unknown as api.FileEvent));
    try {
      await events.next(); // it has started
    } catch (error) {
      signal?.removeEventListener("abort", pass);
      throw error;
    }
    return new Watch(events, stop, () => signal?.removeEventListener("abort", pass));
  }

  /**
   * A link that gives a file to whoever has it, without a key: until it expires, the client's key ends, or the sandbox
   * does. Good for browsers: they save the file, and pages of all origins may read it. A sandbox that sleeps is woken.
   *
   * @param path of the file; it need not be there yet.
   * @throws AuthError the client's key may only read.
   * @throws BadRequestError a path or a time that can't be.
   */
  async downloadUrl(path: string, options: LinkOptions = {}): Promise<string> {
    return this.#link(path, "GET", options);
  }

  /**
   * A link with which whoever has it writes one file, without a key: by PUT or POST of its bytes, or by a form with
   * `<input type="file">`. It lives as long as that of `downloadUrl`, and may be used more than once.
   *
   * @param path of the file; missing folders are made, and what is there is replaced.
   * @param options `maxBytes`: how large the file may be; a larger one is refused with status 413. Default: 1 GiB.
   * @throws AuthError the client's key may only read.
   * @throws BadRequestError a path, a time or a size that can't be.
   */
  async uploadUrl(path: string, options: { maxBytes?: number | undefined } & LinkOptions = {}): Promise<string> {
    return this.#link(path, "PUT", options);
  }

  async #link(path: string, method: "GET" | "PUT", { ttlSeconds = 3600, maxBytes, signal }: { maxBytes?: number | undefined } & LinkOptions): Promise<string> {
    const json = { path, method, ttl_seconds: ttlSeconds, max_bytes: maxBytes };
    return (await this.#client.connection.send({ method: "POST", path: `${this.#sandbox}/fs/link`, json, signal })).object<api.FileLink>().url;
  }

  #call(method: Call["method"], verb: "" | "/stat" | "/dir" | "/tar" | "/watch", path: Path): Call {
    if (typeof path !== "string" && !(path instanceof Uint8Array)) throw new TypeError(`path must be a string, not ${typeof path}`);
    return { method, path: `${this.#sandbox}/fs${verb}`, query: [["path", path]], repeatable: true };
  }

  #tar(path: Path, options: CallOptions): Call {
    return { ...this.#call("GET", "/tar", path), accept: "*/*", quietSeconds: QUIET_SECONDS, ...options };
  }

  #reading(path: Path, { start, end, signal }: ReadOptions): Call {
    const range = rangeOf(start, end);
    return { ...this.#call("GET", "", path), accept: "*/*", quietSeconds: QUIET_SECONDS, headers: range === undefined ? {} : { Range: range }, signal };
  }
}

/**
 * Changes of files, as they happen: iterate over it. A broken connection, and a restart of the server, are not noticed.
 * Where changes may have been missed, there is an event "overflow". The last event is "ended", when what is watched is
 * gone, or the sandbox is, or was put to sleep. Leaving the loop ends the watch.
 */
export class Watch implements AsyncIterableIterator<FileEvent> {
  readonly #events: AsyncGenerator<FileEvent, void, undefined>;
  readonly #stop: AbortController;
  readonly #over: () => void;
  #closed = false;

  /** @internal */
  constructor(events: AsyncGenerator<FileEvent, void, undefined>, stop: AbortController, over: () => void) {
    this.#events = events;
    this.#stop = stop;
    this.#over = over;
  }

  /** The next change; a `for await` calls this. */
  async next(): Promise<IteratorResult<FileEvent, undefined>> {
    try {
      for (;;) {
        const { done, value } = await this.#events.next();
        if (done) return { done, value: undefined };
        if (value.type !== "started") return { done: false, value }; // of one that was begun anew, which "overflow" says
      }
    } catch (error) {
      if (this.#closed) return { done: true, value: undefined };
      throw error;
    }
  }

  /** Ends the watch, also under a loop that waits for the next event, which then ends. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#over();
    this.#stop.abort();
    await this.#events.return().catch(() => undefined); // it has ended either way
  }

  /** Ends the watch, as leaving a `for await` does. */
  async return(): Promise<IteratorResult<FileEvent, undefined>> {
    await this.close();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [asyncDispose](): Promise<void> {
    await this.close();
  }
}

function fileEvent(event: api.FileEvent): FileEvent {
  return {
    ...event,
    ...(event.raw_path === undefined ? {} : { rawPath: fromBase64(event.raw_path) }),
    ...(event.raw_from === undefined ? {} : { rawFrom: fromBase64(event.raw_from) }),
  };
}

function rangeOf(start: number | undefined, end: number | undefined): string | undefined {
  if (start === undefined && end === undefined) return undefined;
  for (const [name, value] of [["start", start], ["end", end]] as const) {
    if (value !== undefined && !Number.isSafeInteger(value)) throw new RangeError(`${name} must be a whole number, not ${value}`);
  }
  if (start !== undefined && start < 0) {
    if (end !== undefined) throw new RangeError("end must be left out when start counts from the end");
    return `bytes=${start}`;
  }
  const from = start ?? 0;
  if (end !== undefined && end <= from) throw new RangeError(`end must be above start (${from}), not ${end}`);
  return `bytes=${from}-${end === undefined ? "" : end - 1}`;
}

function permissions(mode: number | string): string {
  const bits = typeof mode === "string" ? Number.parseInt(mode, 8) : mode;
  if (!Number.isInteger(bits) || bits < 0 || bits > 0o7777 || (typeof mode === "string" && !/^[0-7]+$/.test(mode))) {
    throw new RangeError(`mode must be permissions such as 0o644 or "0644", not ${JSON.stringify(mode)}`);
  }
  return bits.toString(8).padStart(4, "0");
}

function located(entry: api.FileInfo, folder: Path): FileInfo {
  const path = `${shown(folder).replace(/\/+$/, "")}/${entry.name}`;
  if (entry.raw_name === undefined && typeof folder === "string") return { ...entry, path };
  const [above, name] = [bytesOf(folder), entry.raw_name === undefined ? bytesOf(entry.name) : fromBase64(entry.raw_name)];
  return { ...entry, path, rawPath: Uint8Array.from([...above, ...(above.at(-1) === 47 ? [] : [47]), ...name]) };
}

function bytesOf(path: Path): Uint8Array {
  return typeof path === "string" ? new TextEncoder().encode(path) : path;
}

function shown(path: Path): string {
  return typeof path === "string" ? path : new TextDecoder().decode(path);
}
