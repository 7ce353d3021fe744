/** A turn as it is shown: events go in, blocks come out. Finished blocks keep their identity, so that only the one that
 * grows is rendered again. */
import type { Bodies, CheckedNumber, ErrorBody, Facts, Medium, TurnEvent, TurnState } from "../wire/events";

/** Characters of a call's output. */
const KEPT_OUTPUT = 100_000;

export interface TextBlock {
  kind: "text" | "reasoning";
  id: string;
  text: string;
  done: boolean;
  /** Seconds since the epoch, of its first and its newest words. */
  began: number;
  ended: number;
}

export interface Approval extends Omit<Bodies["approval.required"], "call"> {
  decision: string;
  reason: string;
}

export interface CallBlock {
  kind: "call";
  id: string;
  name: string;
  arguments: Facts;
  where: string;
  /** running, waiting (for a person), offered (to a client), returned (to the caller, who runs it), or how it ended:
   * success, error, denied, timeout... */
  status: string;
  client: string;
  /** Seconds since the epoch. */
  began: number;
  /** The end of what it has printed; `cut` characters before it are let go. */
  output: string;
  cut: number;
  result: string;
  seconds: number;
  media: Medium[];
  details: Facts;
  files: Facts[];
  approval: Approval | null;
  done: boolean;
}

export interface NoticeBlock {
  kind: "notice";
  id: string;
  level: string;
  text: string;
  done: true;
}

export type Block = TextBlock | CallBlock | NoticeBlock;

export interface TurnView {
  id: string;
  session: string;
  seq: number;
  state: TurnState;
  reason: string;
  error: ErrorBody | null;
  /** What it waits for before its first word: its place in the queue, the model, nothing. */
  waiting: string;
  /** How many stand before it, 0 when it does not wait in a queue. */
  place: number;
  loading: number | null;
  model: string;
  local: boolean;
  host: string;
  where: string;
  version: Bodies["turn.version"] | null;
  context: Bodies["context"] | null;
  usage: Record<string, number>;
  rounds: number;
  blocks: readonly Block[];
  /** What was made in it by no call that is known. */
  files: readonly Facts[];
  /** Those of the answer, once it was checked. */
  numbers: readonly CheckedNumber[];
  began: number;
  ended: number;
}

export function emptyTurn(id: string, session: string): TurnView {
  return {
    id,
    session,
    seq: 0,
    state: "open",
    reason: "",
    error: null,
    waiting: "",
    place: 0,
    loading: null,
    model: "",
    local: true,
    host: "",
    where: "",
    version: null,
    context: null,
    usage: {},
    rounds: 0,
    blocks: [],
    files: [],
    numbers: [],
    began: 0,
    ended: 0,
  };
}

/** It waits for nothing any more: it has said or done something. */
const atWork = { waiting: "", place: 0, loading: null };

/** The turn after one more event; an event that it has already changes nothing. */
export function applyEvent(turn: TurnView, event: TurnEvent): TurnView {
  if (event.seq <= turn.seq) return turn;
  const next = { ...turn, seq: event.seq, began: turn.began || event.time };
  switch (event.type) {
    case "turn.started":
      return { ...next, ...event.data, waiting: "", place: 0 };
    case "turn.version":
      return { ...next, version: event.data };
    case "queued":
      return { ...next, waiting: event.data.reason, place: event.data.position };
    case "model.loading":
      return { ...next, waiting: `${event.data.stage} ${event.data.model}`, place: 0, loading: event.data.fraction };
    case "context":
      return { ...next, ...atWork, context: event.data, blocks: closeText(turn.blocks) };
    case "text.delta":
      return { ...next, ...atWork, blocks: appendDelta(turn.blocks, "text", event) };
    case "reasoning.delta":
      return { ...next, ...atWork, blocks: appendDelta(turn.blocks, "reasoning", event) };
    case "call.started":
      return { ...next, ...atWork, blocks: [...closeText(turn.blocks), newCall(event.data, event.time)] };
    case "call.returned": {
      const handed = { ...newCall({ ...event.data, where: "caller" }, event.time), status: "returned", done: true };
      return { ...next, ...atWork, blocks: [...closeText(turn.blocks), handed] };
    }
    case "call.output":
      return { ...next, blocks: updateCall(turn, event.data.call, (call) => appendOutput(call, event.data.text)) };
    case "approval.required": {
      const { call, ...required } = event.data;
      const approval = { ...required, decision: "", reason: "" };
      return { ...next, blocks: updateCall(turn, call, () => ({ status: "waiting", approval })) };
    }
    case "approval.resolved": {
      const { call, decision, reason } = event.data;
      return {
        ...next,
        blocks: updateCall(turn, call, ({ approval }) => ({
          status: "running",
          approval: approval && { ...approval, decision, reason },
        })),
      };
    }
    case "call.offered":
      return { ...next, blocks: updateCall(turn, event.data.call, () => ({ status: "offered" })) };
    case "call.claimed":
      return {
        ...next,
        blocks: updateCall(turn, event.data.call, (call) => claimCall(call, event.data)),
      };
    case "call.finished": {
      const { call, text, status, seconds, media, details } = event.data;
      const known = turn.blocks.some((block) => block.kind === "call" && block.id === call);
      const begun = known
        ? next
        : { ...next, blocks: [...closeText(turn.blocks), callWithoutStart(event.data, event.time)] };
      return {
        ...next,
        blocks: updateCall(begun, call, (block) => {
          const where = typeof details["where"] === "string" ? details["where"] : block.where;
          return { status, result: text, seconds, media, details, where, done: true };
        }),
      };
    }
    case "file.produced":
      if (!turn.blocks.some((block) => block.kind === "call" && block.id === event.data.call)) {
        return { ...next, files: [...turn.files, event.data.file] };
      }
      return {
        ...next,
        blocks: updateCall(turn, event.data.call, ({ files }) => ({ files: [...files, event.data.file] })),
      };
    case "state.lost":
      return { ...next, blocks: addNotice(turn.blocks, event.seq, "warning", event.data.reason) };
    case "notice":
      return { ...next, blocks: addNotice(turn.blocks, event.seq, event.data.level, event.data.text) };
    case "answer.checked":
      return { ...next, numbers: event.data.numbers };
    case "turn.finished":
      return {
        ...next,
        state: event.data.state,
        reason: event.data.reason,
        rounds: event.data.rounds,
        usage: event.data.usage,
        error: event.data.error,
        ...atWork,
        ended: event.time,
        blocks: closeAll(turn.blocks),
      };
    default:
      return next; // of a newer server
  }
}

export const isRunning = (turn: TurnView): boolean => turn.state === "open";

type Delta = Extract<TurnEvent, { type: "text.delta" | "reasoning.delta" }>;

function appendDelta(blocks: readonly Block[], kind: TextBlock["kind"], { data, seq, time }: Delta): readonly Block[] {
  const last = blocks.at(-1);
  if (last?.kind === kind && !last.done) {
    return [...blocks.slice(0, -1), { ...last, text: last.text + data.text, ended: time }];
  }
  return [...closeText(blocks), { kind, id: `${kind}-${seq}`, text: data.text, done: false, began: time, ended: time }];
}

/** Who runs a call says where it runs now, and whether it waits for the person there. */
function claimCall(call: CallBlock, { client, where, state }: Bodies["call.claimed"]): Partial<CallBlock> {
  return { status: state ?? "running", client, where: where || call.where };
}

/** A call of the turn waits for the person: in the panel, or where it runs. */
export const needsAnswer = (turn: TurnView): boolean =>
  isRunning(turn) && turn.blocks.some((block) => block.kind === "call" && !block.done && block.status === "waiting");

/** A card of the panel asks about a call of the turn. */
export const hasOpenApproval = (turn: TurnView): boolean =>
  turn.blocks.some((block) => block.kind === "call" && block.approval?.decision === "" && !block.done);

/** A program may print without end: what was printed last is kept. */
function appendOutput(call: CallBlock, text: string): Partial<CallBlock> {
  const all = call.output + text;
  if (all.length <= KEPT_OUTPUT * 2) return { output: all };
  return { output: all.slice(-KEPT_OUTPUT), cut: call.cut + all.length - KEPT_OUTPUT };
}

/** Without an open text at the end; calls end by themselves. */
function closeText(blocks: readonly Block[]): readonly Block[] {
  const last = blocks.at(-1);
  if (!last || last.done || last.kind === "call") return blocks;
  return [...blocks.slice(0, -1), { ...last, done: true }];
}

/** Of a turn that is over: no text grows any more, and a call without an end was broken off. */
function closeAll(blocks: readonly Block[]): readonly Block[] {
  return closeText(blocks).map((block) =>
    block.kind === "call" && !block.done ? { ...block, status: "interrupted", done: true } : block,
  );
}

function newCall({ call, name, arguments: given, where }: Bodies["call.started"], began: number): CallBlock {
  return {
    kind: "call",
    id: call,
    name,
    arguments: given,
    where,
    status: "running",
    client: "",
    began,
    output: "",
    cut: 0,
    result: "",
    seconds: 0,
    media: [],
    details: {},
    files: [],
    approval: null,
    done: false,
  };
}

const callWithoutStart = (body: Bodies["call.finished"], time: number): CallBlock =>
  newCall({ ...body, arguments: {}, where: "" }, time);

function updateCall(turn: TurnView, id: string, change: (call: CallBlock) => Partial<CallBlock>): readonly Block[] {
  return turn.blocks.map((block) =>
    block.kind === "call" && block.id === id ? { ...block, ...change(block) } : block,
  );
}

function addNotice(blocks: readonly Block[], seq: number, level: string, text: string): readonly Block[] {
  return [...closeText(blocks), { kind: "notice", id: `notice-${seq}`, level, text, done: true }];
}
