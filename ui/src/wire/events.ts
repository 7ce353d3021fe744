/** The events of a turn. Fields that the OpenAPI description only calls text or JSON have narrower types here. */
import type * as schema from "./schema";

export type TurnState = schema.TurnFinished["state"];
export type ErrorBody = Pick<schema.ErrorFacts, "code" | "message"> & Partial<schema.ErrorFacts>;

/** `data` is base64; absent if it was sent before or is in the store (`sessions/{id}/blobs/{hash}`). */
export interface Medium {
  mime: string;
  hash?: string;
  size?: number;
  data?: string | null;
}

/** A number of the answer: `computed` in line `line` (from 1) of the output of `call`, found in the `code` of a call,
 * `given` by the user, or `open` if none of these. */
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

/** What the server describes as JSON, but which has a known form. */
interface Precise {
  "call.finished": Omit<schema.CallFinished, "media"> & { media: Medium[] };
  "answer.logprobs": { tokens: TokenLogprob[] };
  "answer.checked": { numbers: CheckedNumber[] };
  "turn.finished": Omit<schema.TurnFinished, "error"> & { error: ErrorBody | null };
}

export type Bodies = Omit<schema.EventBodies, keyof Precise> & Precise;
export type EventType = keyof Bodies;

/** An event: its body in an envelope. `seq` counts from 1 within a turn, `time` is in seconds since the epoch. */
export type TurnEvent = {
  [Type in EventType]: Omit<schema.Event, "type" | "data"> & { type: Type; data: Bodies[Type] };
}[EventType];
