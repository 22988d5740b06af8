// Folders as tar streams: against tar itself, and against streams that a stranger made up.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import * as fs from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import * as sdk from "@pandastack/sdk";
import { serve as serveAny } from "./fake-server.mjs";

const serve = (t) => serveAny(t, sdk);
const LONG = "a name that is so long that it does not fit into the hundred bytes that a header has for it ".repeat(2);
const BROKEN = Buffer.from([0x63, 0x61, 0x66, 0xe9]); // "café" in Latin-1

function folder(t) {
  const made = fs.mkdtempSync(join(tmpdir(), "pandastack-sdk-"));
  t.after(() => fs.rmSync(made, { recursive: true }));
  return made;
}

const at = (dir, name) => Buffer.concat([Buffer.from(`${dir}/`), name]);

test("a folder goes out as tar reads it", async (t) => {
  const { sandbox, server } = await serve(t);
  const dir = folder(t);
  const from = join(dir, "from");
  fs.mkdirSync(join(from, "a/b ü"), { recursive: true });
  const big = Buffer.alloc(1_000_000, "0123456789");
  fs.writeFileSync(join(from, "a/big"), big);
  fs.writeFileSync(join(from, "a/run"), "#!/bin/sh\n");
  fs.chmodSync(join(from, "a/run"), 0o755);
  fs.utimesSync(join(from, "a/run"), 1_000_000_000.25, 1_000_000_000.25);
  fs.writeFileSync(join(from, "a", LONG), "long");
  fs.writeFileSync(at(from, BROKEN), "bytes");
  fs.symlinkSync("a/run", join(from, "link"));
  fs.symlinkSync(LONG, join(from, "longer"));
  execFileSync("mkfifo", [join(from, "fifo")]);
  server.on("PUT", "/sandboxes/sb_1/fs/tar", [200, { path: "/workspace/x", files: 4, folders: 2, links: 2, bytes: 1, left_out: 0 }]);
  const seen = [];
  const copied = await sandbox.filesystem.uploadDir(from, "/workspace/x", { onProgress: ({ bytes }) => seen.push(bytes) });
  assert.deepEqual(copied, { files: 4, folders: 2, links: 2, bytes: 1_000_000 + 10 + 4 + 5, leftOut: ["fifo"] });
  assert.ok(seen.length > 4 && seen.at(-1) === copied.bytes && seen.every((n, i) => i === 0 || n >= seen[i - 1]));
  const [call] = server.sent("PUT", "/fs/tar");
  assert.equal(call.query.path, "/workspace/x");

  fs.mkdirSync(join(dir, "to"));
  execFileSync("tar", ["-x", "-C", join(dir, "to")], { input: call.body });
  const to = join(dir, "to");
  assert.ok(fs.readFileSync(join(to, "a/big")).equals(big));
  assert.deepEqual([fs.readFileSync(join(to, "a", LONG), "utf8"), fs.readFileSync(at(to, BROKEN), "utf8")], ["long", "bytes"]);
  assert.deepEqual([fs.readlinkSync(join(to, "link")), fs.readlinkSync(join(to, "longer"))], ["a/run", LONG]);
  const run = fs.statSync(join(to, "a/run"));
  assert.deepEqual([run.mode & 0o777, run.mtimeMs], [0o755, 1_000_000_000_250]);
  assert.ok(fs.statSync(join(to, "a/b ü")).isDirectory() && !fs.existsSync(join(to, "fifo")));
});

test("a folder comes in as tar wrote it", async (t) => {
  const { sandbox, server } = await serve(t);
  const dir = folder(t);
  const from = join(dir, "from");
  fs.mkdirSync(join(from, "a/closed"), { recursive: true });
  fs.writeFileSync(join(from, "a/closed/file"), "x".repeat(700_000));
  fs.writeFileSync(join(from, "a", LONG), "long");
  fs.writeFileSync(at(from, BROKEN), "bytes");
  fs.symlinkSync("../a", join(from, "a/inside"));
  fs.chmodSync(join(from, "a/closed"), 0o500);
  fs.utimesSync(join(from, "a/closed"), 1_000_000_000, 1_000_000_000);
  const tar = execFileSync("tar", ["-c", "--format=pax", "-C", from, "."], { maxBuffer: 1 << 24 });
  server.on("GET", "/sandboxes/sb_1/fs/tar", [200, tar, { "content-type": "application/x-tar" }]);
  const to = join(dir, "to");
  fs.mkdirSync(join(to, "a"), { recursive: true });
  fs.writeFileSync(join(to, "kept"), "kept");
  fs.writeFileSync(join(to, "a", LONG), "before");
  const copied = await sandbox.filesystem.downloadDir("/workspace/x", to);
  assert.deepEqual({ ...copied, leftOut: copied.leftOut.length }, { files: 3, folders: 2, links: 1, bytes: 700_009, leftOut: 0 });
  assert.deepEqual([fs.readFileSync(join(to, "a", LONG), "utf8"), fs.readFileSync(join(to, "kept"), "utf8"), fs.readFileSync(at(to, BROKEN), "utf8")], ["long", "kept", "bytes"]);
  const closed = fs.statSync(join(to, "a/closed"));
  assert.deepEqual([closed.mode & 0o777, closed.mtimeMs, fs.readlinkSync(join(to, "a/inside"))], [0o500, 1_000_000_000_000, "../a"]);
  assert.deepEqual(fs.readdirSync(join(to, "a")).filter((name) => name.endsWith(".part")), []);
});

// An entry as anybody may write one.
function entry(name, { type = "0", data = "", link = "", mode = 0o644, size = data.length } = {}) {
  const block = Buffer.alloc(512);
  const put = (offset, text) => block.write(text, offset, "latin1");
  put(0, name);
  put(100, `${mode.toString(8).padStart(7, "0")}\0`);
  put(124, `${size.toString(8).padStart(11, "0")}\0`);
  put(136, "00000000000\0");
  put(148, "        ");
  put(156, type);
  put(157, link);
  put(257, "ustar\x0000");
  put(148, `${block.reduce((a, b) => a + b, 0).toString(8).padStart(6, "0")}\0 `);
  return Buffer.concat([block, Buffer.from(data), Buffer.alloc((512 - (data.length % 512)) % 512)]);
}
const END = Buffer.alloc(1024);
const record = (text) => {
  for (let length = text.length; ; length++) if (String(length).length + 1 + text.length + 1 === length) return `${length} ${text}\n`;
};

test("a stranger's stream writes nothing outside of the folder", async (t) => {
  const { sandbox, server } = await serve(t);
  const dir = folder(t);
  const to = join(dir, "to");
  fs.mkdirSync(join(dir, "outside"));
  fs.writeFileSync(join(dir, "outside/victim"), "whole");
  fs.mkdirSync(to);
  fs.symlinkSync("../outside", join(to, "there before"));
  const stream = Buffer.concat([
    entry("../escaped", { data: "x" }),
    entry("a/../../escaped", { data: "x" }),
    entry("nul\u0001", { data: "fine" }),
    entry("out", { type: "2", link: "../outside" }),
    entry("absolute", { type: "2", link: "/etc" }),
    entry("deep/up", { type: "2", link: "../.." }),
    entry("deep/sly", { type: "2", link: "x/../../.." }),
    entry("deep/fine", { type: "2", link: "../a/b" }),
    entry("here", { type: "2", link: "." }),
    entry("here/behind a link", { data: "x" }),
    entry("there before/victim", { data: "broken" }),
    entry("there before/", { type: "5" }),
    entry("hard", { type: "1", link: "../outside/victim" }),
    entry("device", { type: "3" }),
    entry("fifo", { type: "6" }),
    entry("set", { data: "x", mode: 0o6777 }),
    entry("PaxHeaders.0/p", { type: "x", data: record("path=../by record") + record("mtime=1e999") }),
    entry("harmless", { data: "x" }),
    entry("/etc/rooted", { data: "x" }),
    END,
  ]);
  server.on("GET", "/sandboxes/sb_1/fs/tar", [200, stream, { "content-type": "application/x-tar" }]);
  const { leftOut, files, links } = await sandbox.filesystem.downloadDir("/workspace/x", to);
  assert.deepEqual(leftOut, ["../escaped", "a/../../escaped", "out", "absolute", "deep/up", "deep/sly", "here/behind a link", "there before/victim", "there before/", "hard", "device", "fifo", "../by record"]);
  assert.deepEqual([files, links], [3, 2]);
  assert.equal(fs.readFileSync(join(dir, "outside/victim"), "utf8"), "whole");
  assert.deepEqual([fs.readdirSync(dir).sort(), fs.readdirSync(join(dir, "outside"))], [["outside", "to"], ["victim"]]);
  assert.equal(fs.statSync(join(to, "set")).mode & 0o7777, 0o777);
  assert.ok(fs.existsSync(join(to, "etc/rooted")), "from the top of the folder");
});

test("a stream that is cut or broken is an error, and leaves no half file", async (t) => {
  const { sandbox, server } = await serve(t);
  const good = entry("file", { data: "x".repeat(2000) });
  const crooked = entry("file", { data: "x" });
  crooked[0] ^= 1;
  for (const [stream, words] of [
    [good, /ends early/],
    [good.subarray(0, 1000), /ends early/],
    [Buffer.concat([good, END.subarray(0, 512)]), /ends early/],
    [Buffer.concat([crooked, END]), /sum of a header/],
    [Buffer.from("<html>".repeat(200)), /no tar stream/],
    [Buffer.concat([entry("x", { type: "x", data: "7 a=b\n" }), good, END]), /can't be read/],
    [Buffer.concat([entry("x", { type: "x", size: 0o77777777777 })]), /records of an entry take/],
  ]) {
    const to = folder(t);
    server.on("GET", "/sandboxes/sb_1/fs/tar", [200, stream, { "content-type": "application/x-tar" }]);
    await assert.rejects(sandbox.filesystem.downloadDir("/workspace/x", to), words);
    assert.deepEqual(fs.readdirSync(to).filter((name) => name !== "file"), []);
    if (fs.existsSync(join(to, "file"))) assert.equal(fs.statSync(join(to, "file")).size, 2000);
  }
});

test("what can't be read is said before anything is sent, and a refusal is the server's", async (t) => {
  const { sandbox, server } = await serve(t);
  const dir = folder(t);
  fs.writeFileSync(join(dir, "file"), "x");
  await assert.rejects(sandbox.filesystem.uploadDir(join(dir, "none"), "/x"), { code: "ENOENT" });
  await assert.rejects(sandbox.filesystem.uploadDir(join(dir, "file"), "/x"), { code: "ENOTDIR" });
  assert.deepEqual(server.calls, []);
  server.on("PUT", "/sandboxes/sb_1/fs/tar", [507, { error: "the disk is full", code: "no_space" }]);
  await assert.rejects(sandbox.filesystem.uploadDir(dir, "/x"), sdk.CapacityError);
  server.on("GET", "/sandboxes/sb_1/fs/tar", [404, { error: "there is no folder", code: "not_found" }]);
  await assert.rejects(sandbox.filesystem.downloadDir("/x", join(dir, "to")), sdk.NotFoundError);
  assert.ok(!fs.existsSync(join(dir, "to")));
});
