/** Bodies of `agent/v1` that the panel reads, as the handlers of `jupyter_ext` write them. */
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

/** A file that went along with a message. */
export interface InputFile {
  id: string;
  name: string;
  mime: string;
  size: number;
}

/** `events` are those of `turns/{id}/events?stored=1`, without data of media; of a running turn there are none. */
export interface StoredTurn {
  turn: string;
  session: string;
  state: string;
  running: boolean;
  prompt: string;
  cell: string;
  /** Titles of what went along. */
  context: string[];
  /** Files that went along. */
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

/** Oldest first; `older`: there are more before them. `waiting`: turns that were sent and have not begun, which the
 * store does not have yet; their media have data. */
export interface StoredTurns {
  turns: StoredTurn[];
  older: boolean;
  waiting: StoredTurn[];
}

/** What the cell of a turn shows of it: outputs as in a notebook's file, with their data. */
export interface TurnOutputs {
  turn: string;
  outputs: Facts[];
}

/** `sessions/{id}/meanwhile?since=SECONDS&kernel=ID`: what happened while nobody looked. `lost.sandbox` and
 * `lost.kernel` say why variables are gone (empty: they are there); `lost.pieces` of code would make the sandbox's again
 * (`POST sessions/{id}/rebuild`). */
export interface Meanwhile {
  session: string;
  since: number;
  turns: { turn: string; cell: string; state: string; reason: string; closed: number; prompt: string }[];
  /** There may be others before them. */
  more: boolean;
  running: string[];
  approvals: WaitingApproval[];
  lost: { sandbox: string; pieces: number; kernel: string };
  problems: string[];
}
