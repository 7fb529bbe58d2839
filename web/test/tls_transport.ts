// Frames over a pinned TLS connection, for Node: what a browser cannot do. The certificate's digest
// is checked against the roster's by `certificate`, once the roster is known.
import * as crypto from "node:crypto";
import * as tls from "node:tls";
import { bytesAfterHeader, HEADER_BYTES } from "../client/frame.ts";
import type { Transport } from "../client/frame.ts";
import { concat } from "../client/bytes.ts";

export class TlsTransport implements Transport {
  #socket?: tls.TLSSocket;
  #received: Uint8Array = new Uint8Array();
  #wake: () => void = () => {};
  #failed?: Error;

  constructor(
    private readonly host: string,
    private readonly port: number,
  ) {}

  async #connect(): Promise<tls.TLSSocket> {
    if (this.#socket) return this.#socket;
    const socket = tls.connect({
      host: this.host,
      port: this.port,
      minVersion: "TLSv1.3",
      rejectUnauthorized: false, // there are no authorities: the roster pins the certificate
    });
    await new Promise<void>((resolve, reject) => {
      socket.once("secureConnect", resolve);
      socket.once("error", reject);
    });
    socket.on("data", (data: Uint8Array) => {
      this.#received = concat(this.#received, data);
      this.#wake();
    });
    const end = () => {
      this.#failed = new Error("the frontend closed the connection");
      this.#wake();
    };
    socket.on("error", end).on("close", end);
    this.#socket = socket;
    return socket;
  }

  /** SHA-256 of the certificate of this connection. */
  async certificate(): Promise<Uint8Array> {
    const socket = await this.#connect();
    return crypto.createHash("sha256").update(socket.getPeerCertificate().raw).digest();
  }

  async exchange(frame: Uint8Array): Promise<Uint8Array> {
    const socket = await this.#connect();
    socket.write(frame);
    for (;;) {
      if (this.#received.length >= HEADER_BYTES) {
        const size = HEADER_BYTES + bytesAfterHeader(this.#received);
        if (this.#received.length >= size) {
          const answer = this.#received.slice(0, size);
          this.#received = this.#received.slice(size);
          return answer;
        }
      }
      if (this.#failed) throw this.#failed;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  close(): void {
    this.#socket?.destroy();
  }
}
