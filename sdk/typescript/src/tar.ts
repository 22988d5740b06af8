/**
 * Folders of this machine as tar streams, and back. Files, folders and links travel, with their permissions and times.
 *
 * Names are kept as strings with a letter for each byte, so that those that are not UTF-8 travel, too.
 */

import { isWindows, localFiles, type LocalFiles, type LocalPath, type LocalStat } from "./config.js";

const BLOCK = 512;
const PIECE = 256 * 1024;
const LONGEST_NAME = 4096;
const LONGEST_RECORDS = 1 << 20; // of what is said of one entry beside its header

/** What was copied. */
export interface Copied {
  /** How many files. */
  readonly files: number;
  /** How many folders. */
  readonly folders: number;
  /** How many links. */
  readonly links: number;
  /** Of the files. */
  readonly bytes: number;
  /** Names of what is no file, folder or link, and of what leads out of the folder. */
  readonly leftOut: readonly string[];
}

/** Counts what is copied, and says so as it goes. */
export class Tally {
  files = 0;
  folders = 0;
  links = 0;
  bytes = 0;
  readonly leftOut: string[] = [];

  constructor(readonly onProgress: ((copied: Copied) => void) | undefined) {}

  copied(): Copied {
    const { files, folders, links, bytes, leftOut } = this;
    return { files, folders, links, bytes, leftOut: [...leftOut] };
  }

  report(): void {
    this.onProgress?.(this.copied());
  }
}

/** All that is in a folder as a tar stream, a folder before what is in it. Throws at once when it is no folder. */
export function packed(folder: string, tally: Tally): AsyncGenerator<Uint8Array, void, undefined> {
  const fs = localFiles();
  fs.readdirSync(folder, { encoding: "buffer" });
  return pieces(fs, folder, tally);
}

async function* pieces(fs: LocalFiles, folder: string, tally: Tally): AsyncGenerator<Uint8Array, void, undefined> {
  const batch = new Batch();
  for (const piece of packedBelow(fs, folder, "", tally)) yield* batch.add(piece);
  yield* batch.add(new Uint8Array(2 * BLOCK));
  yield* batch.rest();
}

function* packedBelow(fs: LocalFiles, folder: string, above: string, tally: Tally): Generator<Uint8Array> {
  const names = fs.readdirSync(pathOf(folder, above), { encoding: "buffer" }).map(letters).sort();
  for (const name of names) yield* packedEntry(fs, folder, above + name, tally);
}

function* packedEntry(fs: LocalFiles, folder: string, name: string, tally: Tally): Generator<Uint8Array> {
  const path = pathOf(folder, name);
  const stat = fs.lstatSync(path, { bigint: true, throwIfNoEntry: false });
  if (stat === undefined) return; // it has gone since the folder was read
  if (stat.isDirectory()) {
    yield header({ name: `${name}/`, type: "5", size: 0, link: "" }, stat);
    tally.folders++;
    yield* packedBelow(fs, folder, `${name}/`, tally);
  } else if (stat.isSymbolicLink()) {
    yield header({ name, type: "2", size: 0, link: letters(fs.readlinkSync(path, { encoding: "buffer" })) }, stat);
    tally.links++;
  } else if (stat.isFile()) {
    yield* packedFile(fs, path, name, stat, tally);
  } else {
    tally.leftOut.push(shown(name));
  }
}

function* packedFile(fs: LocalFiles, path: LocalPath, name: string, stat: LocalStat, tally: Tally): Generator<Uint8Array> {
  const size = Number(stat.size);
  const { O_RDONLY, O_NONBLOCK = 0, O_NOFOLLOW = 0 } = fs.constants; // what was a file may be a FIFO or a link by now
  const file = fs.openSync(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW);
  try {
    yield header({ name, type: "0", size, link: "" }, stat);
    for (let left = size; left > 0; ) {
      const piece = new Uint8Array(Math.min(left, PIECE));
      const read = fs.readSync(file, piece, 0, piece.length, null);
      if (read === 0) throw new Error(`${shown(name)} became shorter while it was read`);
      left -= read;
      yield piece.subarray(0, read);
      tally.bytes += read;
      tally.report();
    }
  } finally {
    fs.closeSync(file);
  }
  yield new Uint8Array(padding(size));
  tally.files++;
  tally.report();
}

/** Pieces of any size put together into such as are worth sending. */
class Batch {
  #bytes = new Uint8Array(PIECE);
  #filled = 0;

  *add(piece: Uint8Array): Generator<Uint8Array> {
    if (this.#filled + piece.length > PIECE) yield* this.rest();
    if (piece.length >= PIECE) return yield piece;
    this.#bytes.set(piece, this.#filled);
    this.#filled += piece.length;
  }

  *rest(): Generator<Uint8Array> {
    if (this.#filled > 0) yield this.#bytes.subarray(0, this.#filled);
    this.#bytes = new Uint8Array(PIECE); // what was given away is not written to again
    this.#filled = 0;
  }
}

interface Entry {
  readonly name: string;
  /** "0" a file, "5" a folder, "2" a link. */
  readonly type: string;
  readonly size: number;
  readonly link: string;
}

/** The header of an entry, with records before it for what does not fit in one. */
function header(entry: Entry, stat: LocalStat): Uint8Array {
  const { name, link, size } = entry;
  const nanoseconds = stat.mtimeNs;
  const seconds = nanoseconds / 1_000_000_000n;
  const records: [string, string][] = [];
  const plain = (text: string) => text.length <= 100 && /^[ -~]*$/.test(text);
  if (!plain(name)) records.push(["path", name]);
  if (!plain(link)) records.push(["linkpath", link]);
  if (size > 0o77777777777) records.push(["size", String(size)]);
  if (nanoseconds % 1_000_000_000n !== 0n || nanoseconds < 0n) records.push(["mtime", decimal(nanoseconds)]);
  const mode = Number(stat.mode) & 0o7777;
  const main = block({ ...entry, name: plain(name) ? name : name.slice(0, 100), link: plain(link) ? link : "" }, mode, seconds < 0n ? 0 : Number(seconds));
  if (records.length === 0) return main;
  const said = bytesOf(records.map(([key, value]) => record(key, value)).join(""));
  const before = block({ name: `PaxHeaders.0/${name.split("/").filter(Boolean).at(-1) ?? ""}`.slice(0, 100), type: "x", size: said.length, link: "" }, 0o644, 0);
  return joined([before, said, new Uint8Array(padding(said.length)), main]);
}

function block({ name, type, size, link }: Entry, mode: number, mtime: number): Uint8Array {
  const bytes = new Uint8Array(BLOCK);
  const put = (at: number, text: string) => bytes.set(bytesOf(text), at);
  const octal = (value: number, width: number) => `${value.toString(8).padStart(width, "0")}\0`;
  put(0, name);
  put(100, octal(mode, 7));
  put(108, octal(0, 7)); // nobody's: who unpacks it owns it
  put(116, octal(0, 7));
  put(124, octal(size > 0o77777777777 ? 0 : size, 11));
  put(136, octal(mtime > 0o77777777777 ? 0 : mtime, 11));
  put(148, " ".repeat(8));
  put(156, type);
  put(157, link);
  put(257, "ustar\x0000");
  put(148, `${octal(sum(bytes), 6)} `);
  return bytes;
}

/** "LENGTH key=value\n", where the length counts itself. */
function record(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  let length = rest.length + 1;
  while (String(length).length + rest.length !== length) length++;
  return `${length}${rest}`;
}

function decimal(nanoseconds: bigint): string {
  const size = nanoseconds < 0n ? -nanoseconds : nanoseconds;
  return `${nanoseconds < 0n ? "-" : ""}${size / 1_000_000_000n}.${String(size % 1_000_000_000n).padStart(9, "0")}`;
}

/**
 * Makes what is in a tar stream in a folder, which is made. The stream is a stranger's: nothing is written outside of the
 * folder, no link is made that leads out of it, and nothing is put behind a link. A file takes its place when it is whole.
 */
export async function unpack(pieces: AsyncIterable<Uint8Array>, folder: string, tally: Tally): Promise<void> {
  const fs = localFiles();
  fs.mkdirSync(folder, { recursive: true });
  const source = new Source(pieces);
  const looks: Unpacked[] = [];
  try {
    for (let entry = await nextEntry(source); entry !== undefined; entry = await nextEntry(source)) {
      await unpackEntry(fs, folder, entry, source, tally, looks);
    }
    while ((await source.some(PIECE)) !== undefined); // what is broken behind the end is broken, too
  } finally {
    await source.close();
  }
  for (const { name, mode, mtime } of looks.reverse()) {
    const path = pathOf(folder, name);
    fs.chmodSync(path, mode);
    fs.utimesSync(path, mtime, mtime);
  }
}

interface Unpacked extends Entry {
  readonly mode: number;
  /** Seconds. */
  readonly mtime: number;
}

async function unpackEntry(fs: LocalFiles, folder: string, entry: Unpacked, source: Source, tally: Tally, looks: Unpacked[]): Promise<void> {
  const parts = entry.name.split("/").filter((part) => part !== "" && part !== ".");
  const name = parts.join("/");
  if (name === "" && entry.type === "5") return;
  const isFolder = entry.type === "5";
  const safe = name !== "" && name.length <= LONGEST_NAME && parts.every(isPlainName) && isPlain(fs, folder, isFolder ? parts : parts.slice(0, -1));
  if (!safe || !(isFolder || entry.type === "0" || (entry.type === "2" && staysInside(parts.length - 1, entry.link)))) {
    tally.leftOut.push(shown(entry.name));
    return source.skip(entry.size + padding(entry.size));
  }
  const path = pathOf(folder, name);
  if (isFolder) {
    fs.mkdirSync(path, { recursive: true });
    looks.push({ ...entry, name });
    tally.folders++;
    return source.skip(entry.size + padding(entry.size));
  }
  fs.mkdirSync(pathOf(folder, parts.slice(0, -1).join("/")), { recursive: true });
  const part = pathOf(folder, [...parts.slice(0, -1), `.pandastack-${crypto.randomUUID()}.part`].join("/"));
  try {
    if (entry.type === "2") fs.symlinkSync(linkOf(entry.link), part);
    else await unpackFile(fs, part, entry, source, tally);
    fs.renameSync(part, path);
  } finally {
    fs.rmSync(part, { force: true });
  }
  if (entry.type === "2") tally.links++;
  else tally.files++;
  tally.report();
}

async function unpackFile(fs: LocalFiles, path: LocalPath, { size, mode, mtime }: Unpacked, source: Source, tally: Tally): Promise<void> {
  const file = fs.openSync(path, "wx", 0o600);
  try {
    for (let left = size; left > 0; ) {
      const piece = await source.some(left);
      if (piece === undefined) throw cut();
      for (let at = 0; at < piece.length; ) at += fs.writeSync(file, piece.subarray(at));
      left -= piece.length;
      tally.bytes += piece.length;
      tally.report();
    }
  } finally {
    fs.closeSync(file);
  }
  await source.skip(padding(size));
  fs.chmodSync(path, mode);
  fs.utimesSync(path, mtime, mtime);
}

/** Whether a part of a name is one, here and on Windows. */
function isPlainName(part: string): boolean {
  return part !== ".." && !part.includes("\0") && !(isWindows && /[\\:]/.test(part));
}

/** Whether no link stands on the way, as far as it exists. */
function isPlain(fs: LocalFiles, folder: string, parts: readonly string[]): boolean {
  return parts.every((_, at) => !fs.lstatSync(pathOf(folder, parts.slice(0, at + 1).join("/")), { bigint: true, throwIfNoEntry: false })?.isSymbolicLink());
}

/** Whether a link so many folders deep leads to below the top; behind a name, ".." may lead elsewhere than it looks. */
function staysInside(depth: number, target: string): boolean {
  if (target === "" || target.startsWith("/") || target.includes("\0") || (isWindows && /[\\:]/.test(target))) return false;
  const parts = target.split("/").filter((part) => part !== "" && part !== ".");
  const up = parts.findIndex((part) => part !== "..");
  return (up < 0 ? parts.length : up) <= depth && !parts.slice(up < 0 ? parts.length : up).includes("..");
}

/** The next entry, undefined at the end of the stream, which two blocks of zeros mark. */
async function nextEntry(source: Source): Promise<Unpacked | undefined> {
  let said: ReadonlyMap<string, string> = new Map();
  for (;;) {
    const bytes = await source.exactly(BLOCK);
    if (bytes.every((byte) => byte === 0)) {
      if (!(await source.exactly(BLOCK)).every((byte) => byte === 0)) throw unreadable("a block of zeros is not at its end");
      return undefined;
    }
    const field = (at: number, length: number) => letters(bytes.subarray(at, at + length)).split("\0", 1)[0]!;
    const number = (at: number, length: number) => {
      const digits = field(at, length).trim();
      if (!/^[0-7]*$/.test(digits)) throw unreadable(`${JSON.stringify(digits)} is no number`);
      return Number.parseInt(digits || "0", 8);
    };
    const expected = number(148, 8);
    bytes.fill(32, 148, 156);
    if (sum(bytes) !== expected) throw unreadable("the sum of a header is wrong");
    const type = field(156, 1) || "0";
    const size = said.has("size") ? whole(said.get("size")!) : number(124, 12);
    if (type === "x" || type === "g") {
      if (size > LONGEST_RECORDS) throw unreadable(`the records of an entry take ${size} bytes`);
      const found = records(letters(await source.exactly(size)));
      await source.skip(padding(size));
      if (type === "x") said = found; // what holds for all entries is of no use to us
      continue;
    }
    const prefix = field(345, 155);
    const name = said.get("path") ?? (prefix === "" ? field(0, 100) : `${prefix}/${field(0, 100)}`);
    const seconds = Number(said.get("mtime") ?? number(136, 12));
    const mtime = Number.isFinite(seconds) ? Math.min(Math.max(seconds, -(2 ** 33)), 2 ** 33) : 0; // as file systems can keep
    const isFile = type === "0" || type === "7";
    return { name, type: isFile ? "0" : type, size: type === "2" || type === "5" ? 0 : size, link: said.get("linkpath") ?? field(157, 100), mode: number(100, 8) & 0o777, mtime };
  }
}

function records(text: string): Map<string, string> {
  const found = new Map<string, string>();
  for (let at = 0; at < text.length; ) {
    const match = /^(\d{1,8}) ([^=]+)=/.exec(text.slice(at, at + LONGEST_NAME));
    const end = at + Number(match?.[1]);
    if (match === null || end > text.length || text[end - 1] !== "\n") throw unreadable("what it says of an entry can't be read");
    found.set(match[2]!, text.slice(at + match[0].length, end - 1));
    at = end;
  }
  return found;
}

function whole(digits: string): number {
  const value = Number(digits);
  if (!/^\d+$/.test(digits) || !Number.isSafeInteger(value)) throw unreadable(`${JSON.stringify(digits)} is no size`);
  return value;
}

/** A stream that is read in pieces of the reader's size. */
class Source {
  readonly #pieces: AsyncIterator<Uint8Array>;
  #left: Uint8Array = new Uint8Array(0);

  constructor(pieces: AsyncIterable<Uint8Array>) {
    this.#pieces = pieces[Symbol.asyncIterator]();
  }

  /** What comes next, at most so much; undefined at the end. */
  async some(most: number): Promise<Uint8Array | undefined> {
    while (this.#left.length === 0) {
      const { done, value } = await this.#pieces.next();
      if (done) return undefined;
      this.#left = value;
    }
    const piece = this.#left.subarray(0, most);
    this.#left = this.#left.subarray(piece.length);
    return piece;
  }

  async exactly(size: number): Promise<Uint8Array> {
    const bytes = new Uint8Array(size);
    for (let at = 0; at < size; ) {
      const piece = await this.some(size - at);
      if (piece === undefined) throw cut();
      bytes.set(piece, at);
      at += piece.length;
    }
    return bytes;
  }

  async skip(size: number): Promise<void> {
    for (let left = size; left > 0; ) {
      const piece = await this.some(left);
      if (piece === undefined) throw cut();
      left -= piece.length;
    }
  }

  async close(): Promise<void> {
    await this.#pieces.return?.();
  }
}

function cut(): Error {
  return new Error("the tar stream ends early");
}

function unreadable(why: string): Error {
  return new Error(`this is no tar stream: ${why}`);
}

function padding(size: number): number {
  return (BLOCK - (size % BLOCK)) % BLOCK;
}

function sum(bytes: Uint8Array): number {
  return bytes.reduce((total, byte) => total + byte, 0);
}

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

function letters(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000)); // as many as a call takes
  return text;
}

function bytesOf(letters: string): Uint8Array {
  return Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
}

/** As people read it. */
function shown(name: string): string {
  return new TextDecoder().decode(bytesOf(name));
}

/** A name in a folder as this machine's calls take it: text where it is UTF-8, bytes otherwise. */
function pathOf(folder: string, name: string): LocalPath {
  const text = textOf(name);
  if (text !== undefined) return `${folder}/${text}`;
  return joined([new TextEncoder().encode(`${folder}/`), bytesOf(name)]);
}

function linkOf(target: string): LocalPath {
  return textOf(target) ?? bytesOf(target);
}

function textOf(letters: string): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytesOf(letters));
  } catch {
    return undefined;
  }
}
