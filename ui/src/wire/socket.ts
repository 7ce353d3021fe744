/** What goes over `agent/v1/socket`, beside the events of turns (`wire/events.ts`). */
import type { ErrorBody, TurnEvent } from "./events";

/** This page can run these calls for the notebook of a kernel. */
export interface Serving {
  kernel: string;
  tools: string[];
}

export type ClientMessage =
  | { do: "follow"; turn: string; session: string; after: number; number: number }
  | { do: "unfollow"; turn: string }
  | { do: "watch" | "unwatch"; session: string }
  | { do: "watch" | "unwatch"; kernel: string }
  | ({ do: "serve" } & Serving)
  | { do: "unserve"; kernel: string }
  | { do: "ping" };

/** What changed: of `deleted` and `cleared` nothing is left, of the others something is to be read again. */
export type ChangeKind = "title" | "described" | "branch" | "undone" | "cleared" | "outputs" | "compacted" | "deleted";

/** A question that a person is waited for with; the whole of it is an event of its turn. */
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

/** The first answer to `watch`, also after a lost connection: another `revision` than one knows means that something
 * was missed. Of a kernel `session` is the one that its notebook is bound to. After it come the turns that run and the
 * questions that wait. */
export interface Watching {
  type: "watching";
  session: string | null;
  kernel: string;
  revision: number | null;
  branch: string;
  running: string[];
}

/** What happens in a session or with a kernel; each turn that begins, ends or waits for a person. */
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

/** Codes with which the server closes: the page did not read what was sent (it may come back), the user may not read
 * any more (it may not), the server stops. */
export const CLOSED = { tooSlow: 4008, notAllowed: 4003, goingAway: 1001 } as const;

export type ServerMessage =
  | TurnEvent
  | News
  | { type: "pong" }
  | { type: "following"; turn: string; number: number }
  | { type: "unknown.turn"; turn: string }
  | { type: "error"; error: ErrorBody; about: Record<string, string> };
