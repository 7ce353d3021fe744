/** Messages over `agent/v1/socket`, besides the events of turns (`wire/events.ts`). */
import type { ErrorBody, TurnEvent } from "./events";
import type * as schema from "./schema";

export type ClientMessage =
  Required<schema.Follow> | schema.Unfollow | schema.Watch | schema.Serve | schema.Unserve | schema.Ping;

/** The tool calls that this page can run in the notebook of a kernel. */
export type Serving = Omit<schema.Serve, "do">;

/** What changed in a session. After `deleted` the session no longer exists, after `cleared` it has no turns; after the
 * others the client should load the session again. */
type ChangeKind = "title" | "described" | "branch" | "undone" | "cleared" | "outputs" | "compacted" | "deleted";

/** A question that waits for the user; its details are in an event of the turn. */
export interface WaitingApproval {
  turn: string;
  session: string;
  kernel: string;
  approval: string;
  call: string;
  name: string;
  kind: string;
  label: string;
  target: string;
  until: number | null;
}

/** The first answer to `watch`, also after a reconnect: the present state of the session or kernel. If `revision`
 * differs from the one that the page knows, the page has missed changes. If a kernel is watched, `session` is the
 * session that its notebook is bound to. News of each running turn and each open question follow. */
interface Watching {
  type: "watching";
  session: string | null;
  kernel: string;
  revision: number | null;
  branch: string;
  running: string[];
}

/** News of a session or a kernel: the first answer to `watch`, each turn that starts, ends or waits for the user, and
 * changes of the session and of the binding. */
export type News =
  | Watching
  | { type: "turn.opened"; turn: string; session: string; kernel: string; cell: string }
  | { type: "turn.closed"; turn: string; session: string; kernel: string; cell: string; state: string }
  | ({ type: "approval.waiting" } & WaitingApproval)
  | {
      type: "approval.resolved";
      turn: string;
      session: string;
      kernel: string;
      approval: string;
      call: string;
      decision: string;
    }
  | { type: "session.changed"; session: string; what: ChangeKind }
  | { type: "binding.changed"; kernel: string; session: string | null };

/** Codes with which the server closes the WebSocket. `tooSlow`: the page did not read fast enough; it may reconnect.
 * `notAllowed`: the user may no longer read; the page must not reconnect. `goingAway`: the server stops. */
export const CLOSED = { tooSlow: 4008, notAllowed: 4003, goingAway: 1001 } as const;

export type ServerMessage =
  | TurnEvent
  | News
  | { type: "pong" }
  | { type: "following"; turn: string; number: number }
  | { type: "unknown.turn"; turn: string }
  | { type: "error"; error: ErrorBody; about: Record<string, string> };
