// Frames over HTTP: every request is one POST whose body is a frame, and so is its response.
import { HEADER_BYTES, MAX_CONTROL_BYTES } from "./frame.ts";
import type { Transport } from "./frame.ts";
import { concat, require } from "./bytes.ts";

const TIMEOUT_MS = 90_000;

export class HttpTransport implements Transport {
  constructor(private readonly url: string) {}

  async exchange(frame: Uint8Array): Promise<Uint8Array> {
    const response = await fetch(this.url, {
      method: "POST",
      headers: { "Content-Type": "application/octet-stream" },
      body: frame as Uint8Array<ArrayBuffer>,
      cache: "no-store",
      credentials: "omit",
      referrerPolicy: "no-referrer",
      redirect: "error",
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    // What a door refuses by itself is an error frame, too (docs/door.md).
    const framed = response.headers.get("Content-Type") === "application/octet-stream";
    if (!framed || !response.body) throw new Error(`the door answered ${response.status}`);
    // A body that never ends must not fill the memory.
    const parts: Uint8Array[] = [];
    let length = 0;
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return concat(...parts);
      length += value.length;
      if (length > HEADER_BYTES + MAX_CONTROL_BYTES) await reader.cancel();
      require(length <= HEADER_BYTES + MAX_CONTROL_BYTES, "frame: too long");
      parts.push(value);
    }
  }
}
