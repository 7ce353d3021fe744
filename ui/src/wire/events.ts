/** The events of a turn, as `agent_kernel/core/events.py` sends them. */

export type TurnState = "open" | "committed" | "cancelled" | "failed" | "interrupted";
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type Facts = Record<string, Json>;

/** `data` is base64; absent if it was sent before or is in the store (`sessions/{id}/blobs/{hash}`). */
export interface Medium {
  mime: string;
  hash?: string;
  size?: number;
  data?: string | null;
}

export interface ErrorBody {
  code: string;
  message: string;
  hint?: string;
  request_id?: string;
  details?: Facts;
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

export interface TokenLogprob {
  text: string;
  logprob: number;
}

export interface Bodies {
  "turn.started": { model: string; local: boolean; where: string; host: string };
  "turn.version": {
    branch: string;
    number: number;
    count: number;
    replaces: string;
    kept_on: string;
    later: number;
    changed: boolean;
  };
  queued: { position: number; reason: string };
  "model.loading": { model: string; stage: string; fraction: number | null };
  context: { messages: number; dropped: number; shortened: number; summary: boolean };
  "text.delta": { text: string };
  "reasoning.delta": { text: string };
  "call.started": { call: string; name: string; arguments: Facts; where: string };
  "call.output": { call: string; text: string; stream: string };
  "approval.required": {
    approval: string;
    call: string;
    name: string;
    kind: string;
    target: string;
    code: string;
    arguments: Facts;
    source: string;
    label: string;
    shown: string;
    remember: string[];
    until: number | null;
    again: string;
    /** Code points of the invisible characters in `code` and `label`, where they are written as `[U+202E]`. */
    unseen: string[];
  };
  "approval.resolved": { approval: string; call: string; decision: string; reason: string };
  "call.offered": { call: string; name: string; arguments: Facts };
  "call.claimed": { call: string; client: string; where?: string; state?: "running" | "waiting" };
  "call.finished": {
    call: string;
    name: string;
    status: string;
    text: string;
    seconds: number;
    media: Medium[];
    details: Facts;
    files: string[];
  };
  /** The caller runs it and sends the result with its next turn. */
  "call.returned": { call: string; name: string; arguments: Facts };
  "answer.logprobs": { tokens: TokenLogprob[] };
  "file.produced": { call: string; file: Facts };
  "state.lost": { reason: string };
  notice: { level: string; text: string };
  "answer.checked": { numbers: CheckedNumber[] };
  "turn.finished": {
    state: TurnState;
    reason: string;
    rounds: number;
    usage: Record<string, number>;
    error: ErrorBody | null;
    finish?: string;
    stopped?: string;
  };
}

export type EventType = keyof Bodies;

/** An event: its body in an envelope. `seq` counts from 1 within a turn, `time` is in seconds since the epoch. */
export type TurnEvent = {
  [Type in EventType]: {
    seq: number;
    turn: string;
    session: string;
    round: number;
    time: number;
    type: Type;
    data: Bodies[Type];
  };
}[EventType];
