/** Bodies of `agent/v1`, as the handlers of `jupyter_ext` write them. */
import type { ErrorBody, Facts, Medium, TurnEvent } from "./events";
import type { WaitingApproval } from "./socket";

export interface Session {
  id: string;
  title: string;
  branch: string;
  turns: number;
  tags: string[];
  private: boolean;
  created: number;
  updated: number;
}

export interface Binding {
  notebook: string | null;
  session: Session | null;
  model: { model: string; local: boolean; host: string; state: string };
  server: { version: string; url: string };
  notes: string[];
}

export interface StartedTurn {
  turn: string;
  session: string;
  title: string;
  created: boolean;
  stored: boolean;
}

/** A file that was sent with a message. */
export interface InputFile {
  id: string;
  name: string;
  mime: string;
  size: number;
}

/** `events` are those of `turns/{id}/events?stored=1`, without media data; empty for a running turn. */
export interface StoredTurn {
  turn: string;
  session: string;
  state: string;
  running: boolean;
  prompt: string;
  cell: string;
  /** Titles of the context that was sent. */
  context: string[];
  /** Files that were sent. */
  inputs: InputFile[];
  media: Medium[];
  model: string;
  where: string;
  usage: Record<string, number>;
  record: { permission?: string; error?: ErrorBody };
  created: number;
  closed: number | null;
  events: TurnEvent[];
}

/** Oldest first. `older`: there are earlier turns. `waiting`: turns that were sent and have not started, which the
 * store does not have yet; their media have data. */
export interface StoredTurns {
  turns: StoredTurn[];
  older: boolean;
  waiting: StoredTurn[];
}

/** The outputs of a turn's cell, in the file format and with their data. */
export interface TurnOutputs {
  turn: string;
  outputs: Facts[];
}

/** `sessions/{id}/meanwhile?since=SECONDS&kernel=ID`: what happened while the user was away. `lost.sandbox` and
 * `lost.kernel` say why variables are gone (empty if they are not); `lost.pieces` is the number of code pieces that
 * would restore those of the sandbox (`POST sessions/{id}/rebuild`). */
export interface Meanwhile {
  session: string;
  since: number;
  turns: { turn: string; cell: string; state: string; reason: string; closed: number; prompt: string }[];
  /** There may be earlier ones. */
  more: boolean;
  running: string[];
  approvals: WaitingApproval[];
  lost: { sandbox: string; pieces: number; kernel: string };
  problems: string[];
}
