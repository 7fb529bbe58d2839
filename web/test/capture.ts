// A TCP proxy that keeps what passes: what somebody who watches a link sees.
import * as net from "node:net";

export class Capture {
  readonly forward: Buffer[] = [];
  readonly back: Buffer[] = [];
  #server?: net.Server;

  async listen(port: number, to: number): Promise<number> {
    this.#server = net.createServer((near) => {
      const far = net.connect(to, "127.0.0.1");
      near.on("data", (data) => {
        this.forward.push(data);
        far.write(data);
      });
      far.on("data", (data) => {
        this.back.push(data);
        near.write(data);
      });
      for (const [one, other] of [
        [near, far],
        [far, near],
      ] as const) {
        one.on("error", () => other.destroy());
        one.on("end", () => other.end());
        one.on("close", () => other.end());
      }
    });
    await new Promise<void>((resolve) => this.#server!.listen(port, "127.0.0.1", resolve));
    return (this.#server!.address() as net.AddressInfo).port;
  }

  /** Forgets what passed so far. */
  clear(): void {
    this.forward.length = this.back.length = 0;
  }

  bytes(): { forward: number; back: number } {
    const sum = (parts: Buffer[]) => parts.reduce((total, part) => total + part.length, 0);
    return { forward: sum(this.forward), back: sum(this.back) };
  }

  close(): void {
    this.#server?.close();
  }
}
