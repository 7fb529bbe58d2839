// What programs use of this client.
export { systemRandom, Refused } from "./bytes.ts";
export { fingerprintOfPins, parsePins } from "./deployment.ts";
export type { Deployment, Pins, Round } from "./deployment.ts";
export { FrontendError } from "./frame.ts";
export type { Exchange, Transport } from "./frame.ts";
export { HttpTransport } from "./http_transport.ts";
export { Client, RoundLost } from "./lookup.ts";
export type { Answer, Event, Options, Result, SlotView } from "./lookup.ts";
export { WebSocketTransport } from "./web_socket_transport.ts";
