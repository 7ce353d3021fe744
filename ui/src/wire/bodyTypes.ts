/** Bodies of `agent/v1` in which some fields have narrower types than in the server's OpenAPI document, which describes
 * these fields only as text or JSON. */
import type { ErrorBody, TurnEvent } from "./events";
import type * as schema from "./schema";
import type { WaitingApproval } from "./socket";

/** A turn in the list of a session's turns. `events` are its stored events, as `turns/{id}/events?stored=1` returns
 * them, without media data; empty for a running turn. `context` has the titles of the notes that were sent with the
 * prompt. */
export interface StoredTurn extends Omit<schema.ShownTurn, "events" | "record"> {
  record: { permission?: string; error?: ErrorBody };
  events: TurnEvent[];
}

/** One event of the stream of an inline completion (`POST infill`). */
export interface InfillLine extends schema.InfillEvent {
  error?: ErrorBody;
}

/** One event of the stream of a model download. In the last event, `stage` is "done" or "failed". */
export interface PullLine extends schema.PullEvent {
  error?: ErrorBody;
}

/** A page of a session's turns, the oldest first. `turns` are stored; `waiting` are queued turns that the store does
 * not have yet, so their media contain the bytes, not only a hash. */
export interface StoredTurns extends Omit<schema.Turns, "turns" | "waiting"> {
  turns: StoredTurn[];
  waiting: StoredTurn[];
}

/** The response of `sessions/{id}/meanwhile?since=SECONDS&kernel=ID`: what happened while the user was away.
 * `lost.sandbox` and `lost.kernel` say why variables of the sandbox and of the kernel no longer exist (empty if they
 * exist); `lost.pieces` is the number of pieces of code that would restore those of the sandbox (`POST
 * sessions/{id}/rebuild`). */
export interface Meanwhile extends Omit<schema.Meanwhile, "approvals"> {
  approvals: WaitingApproval[];
}

/** The conversation file that came with a notebook, as the panel offers it for import. `refused` is the reason why it
 * cannot be imported, and then only `sha256` is present besides it; otherwise `refused` is empty and all fields are
 * present, except that `created` and `updated` may be missing. Times are in seconds since the epoch, sizes in bytes. */
export interface Arrival extends Required<Omit<schema.Arrival, "created" | "updated">> {
  created?: number;
  updated?: number;
}

export interface Sidecar extends schema.Beside {
  kind: "nothing" | "own" | "moved" | "copied" | "ahead" | "foreign" | "unreadable";
  arrival: Arrival | null;
}
