// Frames, and the frontend's requests (docs/protocol.md, section 3). What carries the frames is a
// Transport: a browser's fetch, or a TLS connection of Node.
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import type { DescMessage, MessageInitShape, MessageShape } from "@bufbuild/protobuf";
import * as wire from "../gen/src/wire/client_pb.ts";
import { concat, Refused, require, viewOf } from "./bytes.ts";

export const HEADER_BYTES = 20;
/** The most that a frontend sends in one frame. */
export const MAX_CONTROL_BYTES = 4 << 20;
const MAGIC = 0x334c4853; // "SHL3", little endian
const EARLIER = new Map([
  [0x314c4853, "0.1"],
  [0x324c4853, "0.2"],
]);
const ERROR = 1;

/** Sends one request frame, and gives the frame that answers it. Throws if there was no answer. */
export interface Transport {
  exchange(frame: Uint8Array): Promise<Uint8Array>;
}

export const UNAVAILABLE = 14;

/** The beginning of a text that nobody has signed, for people: without what moves, hides or turns round the
 *  text beside it. */
export function plainText(text: string): string {
  return text.slice(0, 200).replace(/[\p{C}\p{Z}]+/gu, " ");
}

/** The frontend's refusal of a request; `code` is one of section 3. The text is for people. */
export class FrontendError extends Error {
  override name = "FrontendError";
  constructor(
    readonly code: number,
    message: string,
  ) {
    super(message);
  }
}

export function encodeFrame(type: number, control: Uint8Array): Uint8Array {
  const header = new Uint8Array(HEADER_BYTES);
  const view = viewOf(header);
  view.setUint32(0, MAGIC, true);
  view.setUint16(4, type, true);
  view.setUint32(8, control.length, true);
  return concat(header, control);
}

/** The bytes that follow a frame's header, from the header itself. */
export function bytesAfterHeader(header: Uint8Array): number {
  require(header.length >= HEADER_BYTES, "frame: shorter than its header");
  const view = viewOf(header);
  const magic = view.getUint32(0, true);
  const earlier = EARLIER.get(magic);
  require(
    earlier === undefined,
    `frame: a message of Shoal ${earlier} came to a client of Shoal 0.3, and these do not understand each ` +
      "other: all programs of a deployment, its parties' and its clients', change their version together",
  );
  require(magic === MAGIC, "frame: not one of this version");
  require(view.getUint16(6, true) === 0, "frame: a byte that must be zero");
  const control = view.getUint32(8, true);
  require(control <= MAX_CONTROL_BYTES, "frame: too long");
  require(view.getBigUint64(12, true) === 0n, "frame: a bulk part, which no frontend sends");
  return control;
}

export function decodeFrame(frame: Uint8Array): { type: number; control: Uint8Array } {
  const control = bytesAfterHeader(frame);
  require(frame.length === HEADER_BYTES + control, "frame: another length than it says");
  return { type: viewOf(frame).getUint16(4, true), control: frame.subarray(HEADER_BYTES) };
}

function parse<T extends DescMessage>(schema: T, bytes: Uint8Array): MessageShape<T> {
  try {
    return fromBinary(schema, bytes);
  } catch (error) {
    throw new Refused(`${schema.name}: does not parse: ${String(error)}`);
  }
}

export interface Method<Request extends DescMessage, Response extends DescMessage> {
  type: number;
  request: Request;
  response: Response;
}
function method<Request extends DescMessage, Response extends DescMessage>(
  type: number,
  request: Request,
  response: Response,
): Method<Request, Response> {
  return { type, request, response };
}

export const methods = {
  getDeployment: method(16, wire.GetDeploymentRequestSchema, wire.GetDeploymentResponseSchema),
  getPlacement: method(17, wire.GetPlacementRequestSchema, wire.GetPlacementResponseSchema),
  listRounds: method(18, wire.ListRoundsRequestSchema, wire.ListRoundsResponseSchema),
  waitRound: method(19, wire.WaitRoundRequestSchema, wire.WaitRoundResponseSchema),
  submitOnions: method(20, wire.SubmitOnionsRequestSchema, wire.SubmitOnionsResponseSchema),
  submitQueries: method(21, wire.SubmitQueriesRequestSchema, wire.SubmitQueriesResponseSchema),
  fetchAnswers: method(22, wire.FetchAnswersRequestSchema, wire.FetchAnswersResponseSchema),
  getStatus: method(23, wire.GetStatusRequestSchema, wire.GetStatusResponseSchema),
  getRowVersions: method(24, wire.GetRowVersionsRequestSchema, wire.GetRowVersionsResponseSchema),
};

/** What one request was, for people who want to see the traffic. */
export interface Exchange {
  type: number;
  sent: Uint8Array;
  received: Uint8Array;
}

export class Frontend {
  constructor(
    private readonly transport: Transport,
    private readonly watch: (exchange: Exchange) => void = () => {},
  ) {}

  async call<Request extends DescMessage, Response extends DescMessage>(
    method: Method<Request, Response>,
    fields: MessageInitShape<Request>,
  ): Promise<MessageShape<Response>> {
    const control = toBinary(method.request, create(method.request, fields));
    const sent = encodeFrame(method.type, control);
    const received = await this.transport.exchange(sent);
    this.watch({ type: method.type, sent, received });
    const answer = decodeFrame(received);
    if (answer.type === ERROR) {
      const error = parse(wire.ErrorSchema, answer.control);
      throw new FrontendError(error.code, plainText(error.message));
    }
    require(answer.type === method.type, "frame: an answer of another type");
    return parse(method.response, answer.control);
  }
}
