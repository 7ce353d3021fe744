/** Bodies of `agent/v1` with types that the server describes as plain text or JSON. */
import type { ErrorBody, TurnEvent } from "./events";
import type * as schema from "./schema";
import type { WaitingApproval } from "./socket";

/** `events` are those of `turns/{id}/events?stored=1`, without media data; empty for a running turn. `context` has the
 * titles of what was sent with the prompt. */
export interface StoredTurn extends Omit<schema.ShownTurn, "events" | "record"> {
  record: { permission?: string; error?: ErrorBody };
  events: TurnEvent[];
}

/** A line of the stream of a completion. */
export interface InfillLine extends schema.InfillEvent {
  error?: ErrorBody;
}

/** A line of the download stream; the last one has the stage done or failed. */
export interface PullLine extends schema.PullEvent {
  error?: ErrorBody;
}

/** The stored turns of a session, the oldest first. The media of `waiting` contain their bytes, not only a hash. */
export interface StoredTurns extends Omit<schema.Turns, "turns" | "waiting"> {
  turns: StoredTurn[];
  waiting: StoredTurn[];
}

/** `sessions/{id}/meanwhile?since=SECONDS&kernel=ID`: what happened while the user was away. `lost.sandbox` and
 * `lost.kernel` say why variables are gone (empty if they are not); `lost.pieces` is the number of code pieces that
 * would restore those of the sandbox (`POST sessions/{id}/rebuild`). */
export interface Meanwhile extends Omit<schema.Meanwhile, "approvals"> {
  approvals: WaitingApproval[];
}

/** A conversation that came with a notebook and can be imported. Times are in seconds since the epoch, sizes in bytes.
 * `refused` is the reason why the conversation cannot be imported; the other fields are missing then. */
export interface Arrival extends Required<Omit<schema.Arrival, "created" | "updated">> {
  created?: number;
  updated?: number;
}

export interface Sidecar extends schema.Beside {
  kind: "nothing" | "own" | "moved" | "copied" | "ahead" | "foreign" | "unreadable";
  arrival: Arrival | null;
}
