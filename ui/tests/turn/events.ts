/** Events of one turn as the server numbers them, a second apart. */
import { applyEvent, emptyTurn, type TurnView } from "../../src/turn/turn";
import type { Bodies, EventType, TurnEvent } from "../../src/wire/events";

export type Said = { [Type in EventType]: [Type, Bodies[Type]] }[EventType];

export function events(...bodies: Said[]): TurnEvent[] {
  return bodies.map(
    ([type, data], index) =>
      ({ seq: index + 1, turn: "t", session: "s", round: 1, time: 100 + index, type, data }) as TurnEvent,
  );
}

/** What is shown of it; `from`: more events of the same turn. */
export function shown(...bodies: Said[]): TurnView {
  return events(...bodies).reduce(applyEvent, emptyTurn("t", "s"));
}

export function more(turn: TurnView, ...bodies: Said[]): TurnView {
  return events(...bodies)
    .map((event) => ({ ...event, seq: event.seq + turn.seq, time: event.time + turn.seq }))
    .reduce(applyEvent, turn);
}

export const call = (id: string, name = "python", given: Bodies["call.started"]["arguments"] = {}): Said => [
  "call.started",
  { call: id, name, arguments: given, where: "live" },
];

export const finished = (id: string, more: Partial<Bodies["call.finished"]> = {}): Said => [
  "call.finished",
  { call: id, name: "python", status: "success", text: "", seconds: 0.5, media: [], details: {}, files: [], ...more },
];

export const asks = (id: string, more: Partial<Bodies["approval.required"]> = {}): Said => [
  "approval.required",
  {
    approval: `appr_${id}`,
    call: id,
    name: "python",
    kind: "python.live",
    target: "live",
    code: "total = 6 * 7",
    arguments: { code: "total = 6 * 7" },
    source: "built_in",
    label: "python",
    shown: "hash-of-it",
    remember: ["session", "never"],
    until: null,
    again: "",
    unseen: [],
    editable: "",
    ...more,
  },
];

export const over = (more: Partial<Bodies["turn.finished"]> = {}): Said => [
  "turn.finished",
  { state: "committed", reason: "", rounds: 1, usage: {}, error: null, finish: "", stopped: "", ...more },
];
