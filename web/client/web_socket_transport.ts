// Frames over WebSockets: a binary message is one frame (docs/door.md). A socket carries one request at
// a time, so that a request beside one that waits opens another.
import { HEADER_BYTES, MAX_CONTROL_BYTES } from "./frame.ts";
import type { Transport } from "./frame.ts";

const TIMEOUT_MS = 90_000;

export class WebSocketTransport implements Transport {
  readonly #idle: WebSocket[] = [];

  constructor(private readonly url: string) {}

  async exchange(frame: Uint8Array): Promise<Uint8Array> {
    const socket = await this.#take();
    return new Promise((resolve, reject) => {
      const end = (outcome: Uint8Array | Error) => {
        clearTimeout(timer);
        socket.onmessage = socket.onerror = socket.onclose = null;
        if (outcome instanceof Error) {
          socket.close();
          reject(outcome);
        } else {
          this.#rest(socket);
          resolve(outcome);
        }
      };
      const timer = setTimeout(() => end(new Error("the door is silent")), TIMEOUT_MS);
      socket.onclose = socket.onerror = () => end(new Error("the door closed the connection"));
      socket.onmessage = ({ data }) => {
        if (!(data instanceof ArrayBuffer)) return end(new Error("the door sent text"));
        if (data.byteLength > HEADER_BYTES + MAX_CONTROL_BYTES) return end(new Error("frame: too long"));
        end(new Uint8Array(data));
      };
      socket.send(frame as Uint8Array<ArrayBuffer>);
    });
  }

  /** Keeps a socket for the next request. What comes unasked ends it. */
  #rest(socket: WebSocket): void {
    socket.onmessage = () => socket.close();
    socket.onclose = () => {
      const at = this.#idle.indexOf(socket);
      if (at >= 0) this.#idle.splice(at, 1);
    };
    this.#idle.push(socket);
  }

  async #take(): Promise<WebSocket> {
    const rested = this.#idle.pop();
    if (rested?.readyState === WebSocket.OPEN) return rested;
    const socket = new WebSocket(this.url);
    socket.binaryType = "arraybuffer";
    // Closing a socket that is not open yet ends in onclose.
    const timer = setTimeout(() => socket.close(), TIMEOUT_MS);
    try {
      await new Promise<void>((resolve, reject) => {
        socket.onopen = () => resolve();
        socket.onerror = socket.onclose = () => reject(new Error("the door does not answer"));
      });
    } finally {
      clearTimeout(timer);
    }
    return socket;
  }
}
