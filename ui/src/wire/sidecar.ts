/** Bodies of `agent/v1/beside` with types that the server describes as plain text. */
import type * as schema from "./schema";

/** Times in seconds since the epoch, sizes in bytes. `refused` is the reason why it cannot be imported; the other
 * fields are missing then. */
export interface Arrival extends Required<Omit<schema.Arrival, "created" | "updated">> {
  created?: number;
  updated?: number;
}

export interface Sidecar extends schema.Beside {
  kind: "nothing" | "own" | "moved" | "copied" | "ahead" | "foreign" | "unreadable";
  arrival: Arrival | null;
}
