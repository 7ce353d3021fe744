/** What goes over `agent/v1/socket`, beside the events of turns (`wire/events.ts`). */
import type { TurnEvent } from "./events";

/** This page can run these calls for the notebook of a kernel. */
export interface Serving {
  kernel: string;
  tools: string[];
}

export type Ask =
  | { do: "follow"; turn: string; session: string; after: number }
  | { do: "unfollow"; turn: string }
  | { do: "watch" | "unwatch"; session: string }
  | { do: "watch" | "unwatch"; kernel: string }
  | ({ do: "serve" } & Serving)
  | { do: "unserve"; kernel: string }
  | { do: "ping" };

/** A turn that runs when one begins to watch, and each that begins, ends or waits for a person later; a session that
 * changed in another way (title, branch, deleted). */
export type News =
  | { type: "turn.opened"; turn: string; session: string; kernel: string; cell: string }
  | { type: "turn.closed"; turn: string; session: string; kernel: string; state: string }
  | { type: "session.changed"; session: string; what: string };

export type Said =
  | TurnEvent
  | News
  | { type: "pong" }
  | { type: "unknown.turn"; turn: string }
  | { type: "error"; error: { code: string; message: string } };
