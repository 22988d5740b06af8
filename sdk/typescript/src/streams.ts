/** Bodies of any size, on their way in and out. */

import { localFiles } from "./config.js";
import type { Content, StreamAnswer } from "./connection.js";

/**
 * An answer's body, read no faster than it is wanted.
 * @internal
 */
export function streamed(answer: StreamAnswer): ReadableStream<Uint8Array> {
  const pieces = answer.pieces();
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await pieces.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      cancel() {
        answer.close();
      },
    },
    { highWaterMark: 0 },
  );
}

/**
 * A view of a part of a buffer is sent as that part.
 * @internal
 */
export function content(data: unknown): Content {
  const fits = typeof data === "string" || (typeof data === "object" && data !== null && (ArrayBuffer.isView(data) || data instanceof ArrayBuffer || data instanceof Blob || data instanceof ReadableStream || Symbol.asyncIterator in data));
  if (!fits) throw new TypeError(`data must be a string, bytes, a Blob or a stream, not ${data === null ? "null" : typeof data}`);
  return data as Content;
}

/**
 * An answer's body in a local file, which appears when it is complete. Gives its size in bytes.
 * @internal
 */
export async function saved(answer: StreamAnswer, local: string): Promise<number> {
  let size = 0;
  try {
    const fs = localFiles();
    const part = `${local}.${crypto.randomUUID().slice(0, 8)}.part`;
    try {
      const file = fs.openSync(part, "wx");
      try {
        for await (const piece of answer.pieces()) {
          for (let at = 0; at < piece.length; ) at += fs.writeSync(file, piece.subarray(at));
          size += piece.length;
        }
      } finally {
        fs.closeSync(file);
      }
      fs.renameSync(part, local);
    } finally {
      fs.rmSync(part, { force: true });
    }
  } finally {
    answer.close();
  }
  return size;
}
