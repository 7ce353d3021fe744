/** The events of a turn. Some fields have narrower types here than in the server's OpenAPI document, which describes
 * them only as text or JSON. */
import type * as schema from "./schema";

export type TurnState = schema.TurnFinished["state"];
export type ErrorBody = Pick<schema.ErrorFacts, "code" | "message"> & Partial<schema.ErrorFacts>;

/** An image or another medium. `data` has its bytes in base64; it is absent if they were sent before or are in the
 * store (`sessions/{id}/blobs/{hash}`). */
export interface Medium {
  mime: string;
  hash?: string;
  size?: number;
  data?: string | null;
}

/** A number in an answer, and where it comes from: `computed` in line `line` (from 1) of the output of the call `call`,
 * found in the `code` of a call, `given` by the user, or `open` if it comes from none of these. */
export interface CheckedNumber {
  start: number;
  end: number;
  text: string;
  status: "computed" | "code" | "given" | "open";
  call?: string;
  line?: number;
  shown?: string;
}

interface TokenLogprob {
  text: string;
  logprob: number;
}

/** Bodies of events with fields that the server's OpenAPI document describes as JSON, but that have a known form. */
interface Precise {
  "call.finished": Omit<schema.CallFinished, "media"> & { media: Medium[] };
  "answer.logprobs": { tokens: TokenLogprob[] };
  "answer.checked": { numbers: CheckedNumber[] };
  "turn.finished": Omit<schema.TurnFinished, "error"> & { error: ErrorBody | null };
}

export type Bodies = Omit<schema.EventBodies, keyof Precise> & Precise;
export type EventType = keyof Bodies;

/** An event: its type, its body `data`, and common fields. `seq` counts the events of a turn from 1; `time` is in
 * seconds since the epoch. */
export type TurnEvent = {
  [Type in EventType]: Omit<schema.Event, "type" | "data"> & { type: Type; data: Bodies[Type] };
}[EventType];
