/** Messages over `agent/v1/socket`, besides the events of turns (`wire/events.ts`). */
import type { ErrorBody, TurnEvent } from "./events";
import type * as schema from "./schema";

export type ClientMessage =
  Required<schema.Follow> | schema.Unfollow | schema.Watch | schema.Serve | schema.Unserve | schema.Ping;

/** The calls that this page can run for the notebook of a kernel. */
export type Serving = Omit<schema.Serve, "do">;

/** What changed in a session. After `deleted` and `cleared` nothing is left; after the others the client should load
 * the session again. */
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

/** The first response to `watch`, also after a reconnect. A `revision` other than the known one means that something
 * was missed. For a kernel `session` is the one that its notebook is bound to. The running turns and open questions
 * follow. */
interface Watching {
  type: "watching";
  session: string | null;
  kernel: string;
  revision: number | null;
  branch: string;
  running: string[];
}

/** News of a session or a kernel: each turn that starts, ends or waits for the user. */
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

/** Close codes of the server: the page did not read fast enough (it may reconnect), the user may not read any more (it
 * may not), the server stops. */
export const CLOSED = { tooSlow: 4008, notAllowed: 4003, goingAway: 1001 } as const;

export type ServerMessage =
  | TurnEvent
  | News
  | { type: "pong" }
  | { type: "following"; turn: string; number: number }
  | { type: "unknown.turn"; turn: string }
  | { type: "error"; error: ErrorBody; about: Record<string, string> };
