// What this page's own server tells beside the door (web/serve.py): where the door is, and, where the
// visitor may play the last party, the two buttons.

export interface About {
  pad: number;
  door: string; // where frames are posted, or, with ws: or wss:, sent as messages
  keys: string[];
  demonstration: boolean; // everything runs on one machine
  canSpoil: boolean;
}

export interface OtherClient {
  command: string;
  exitCode: number;
  output: string;
  errors: string;
}

async function get(path: string): Promise<Response> {
  const response = await fetch(path, { cache: "no-store" });
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response;
}

async function post(path: string, body: unknown): Promise<Response> {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
  return response;
}

export async function about(): Promise<About> {
  return (await (await get("about.json")).json()) as About;
}

export async function pins(): Promise<string> {
  return (await get("pinned.textproto")).text();
}

/** Ends the last party, and starts it again with one byte of the row changed. */
export async function spoil(row: number): Promise<void> {
  await post("play/spoil", { row });
}

export async function honest(): Promise<void> {
  await post("play/honest", {});
}

/** Asks for the key with `shoal query`, the client in C++. */
export async function otherClient(key: string): Promise<OtherClient> {
  return (await (await post("play/query", { key })).json()) as OtherClient;
}
