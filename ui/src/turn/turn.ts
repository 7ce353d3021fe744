/** The view of a turn, made of its events: each event adds or changes blocks. Complete blocks keep their identity, so
 * that only the growing block is rendered again. */
import type { Bodies, CheckedNumber, ErrorBody, Medium, TurnEvent, TurnState } from "../wire/events";
import type { Facts } from "../wire/schema";

/** Number of characters of a call's output that are kept when it is cut. It is cut when it is more than twice as
 * long. */
const KEPT_OUTPUT = 100_000;

export interface TextBlock {
  kind: "text" | "reasoning";
  id: string;
  text: string;
  done: boolean;
  /** Time of the first and the latest text, in seconds since the epoch. */
  began: number;
  ended: number;
}

export interface Approval extends Omit<Bodies["approval.required"], "call"> {
  decision: string;
  reason: string;
  /** The text that the user wrote in place of the proposed one; null if they changed nothing. */
  edited: string | null;
}

export interface CallBlock {
  kind: "call";
  id: string;
  name: string;
  arguments: Facts;
  where: string;
  /** running, waiting (for the user), offered (to a client), returned (to the caller, who runs it), or the result:
   * success, error, denied, timeout... */
  status: string;
  client: string;
  /** Seconds since the epoch. */
  began: number;
  /** The end of the output; `cut` characters before it were dropped. */
  output: string;
  cut: number;
  result: string;
  seconds: number;
  media: Medium[];
  details: Facts;
  files: Facts[];
  approval: Approval | null;
  /** The failed call that this call repeats with a corrected program; null if this call is no correction. */
  corrects: CallBlock | null;
  done: boolean;
}

export interface NoticeBlock {
  kind: "notice";
  id: string;
  level: string;
  text: string;
  details: string;
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
  /** Whether the last text of this view is not in the store, because the server was killed while the text arrived. */
  unsaved: boolean;
  /** What the turn waits for before its first text: the queue or the model; empty for nothing. */
  waiting: string;
  /** Number of turns before this one in the queue; 0 if it is not queued. */
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
  /** Files that belong to no known call. */
  files: readonly Facts[];
  /** The checked numbers of the answer. */
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
    unsaved: false,
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

/** The fields of a turn that no longer waits, because it has produced something. */
const atWork = { waiting: "", place: 0, loading: null };

/** Apply an event to a turn. An event that was already applied changes nothing. */
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
      return { ...next, waiting: `${event.data.model}: ${event.data.stage}`, place: 0, loading: event.data.fraction };
    case "context":
      return { ...next, ...atWork, context: event.data, blocks: closeText(turn.blocks) };
    case "text.delta":
      return { ...next, ...atWork, blocks: appendDelta(turn.blocks, "text", event) };
    case "reasoning.delta":
      return { ...next, ...atWork, blocks: appendDelta(turn.blocks, "reasoning", event) };
    case "call.started":
      return { ...next, ...atWork, blocks: startCall(closeText(turn.blocks), newCall(event.data, event.time)) };
    case "call.returned": {
      const handed = { ...newCall({ ...event.data, where: "caller" }, event.time), status: "returned", done: true };
      return { ...next, ...atWork, blocks: [...closeText(turn.blocks), handed] };
    }
    case "call.output":
      return { ...next, blocks: updateCall(turn, event.data.call, (call) => appendOutput(call, event.data.text)) };
    case "approval.required": {
      const { call, ...required } = event.data;
      const approval = { ...required, decision: "", reason: "", edited: null };
      return { ...next, blocks: updateCall(turn, call, () => ({ status: "waiting", approval })) };
    }
    case "approval.resolved": {
      const { call, decision, reason, edited } = event.data;
      return {
        ...next,
        blocks: updateCall(turn, call, ({ approval }) => ({
          status: "running",
          approval: approval && { ...approval, decision, reason, edited: edited ?? null },
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
      return {
        ...next,
        blocks: addNotice(turn.blocks, event.seq, { level: "warning", text: event.data.reason, details: "" }),
      };
    case "notice":
      if (event.data.text === GONE) return { ...next, unsaved: endsInOpenText(turn) };
      return { ...next, blocks: addNotice(turn.blocks, event.seq, event.data) };
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
      return next; // an event type of a newer server
  }
}

/** The text of the notice that a restarted server sends to a page that has already received some of the live events of
 * a turn. */
const GONE = "The live events of this turn no longer exist. Read its stored events from the beginning (after=0).";

const endsInOpenText = ({ blocks }: TurnView): boolean => {
  const last = blocks.at(-1);
  return (last?.kind === "text" || last?.kind === "reasoning") && !last.done;
};

/** The view `stored` of a turn, with the last text of the view `shown` added if the server was killed while this text
 * arrived: the store has only complete steps. */
export function keepUnsaved(stored: TurnView, shown: TurnView): TurnView {
  const last = shown.blocks.at(-1);
  if (stored.state !== "interrupted" || !last || !(shown.unsaved || endsInOpenText(shown))) return stored;
  return { ...stored, unsaved: true, blocks: [...stored.blocks, { ...last, done: true }] };
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

/** The fields of a call after a client has claimed it. The client that runs a call reports where the call runs, and
 * whether it waits for the user there. */
function claimCall(call: CallBlock, { client, where, state }: Bodies["call.claimed"]): Partial<CallBlock> {
  return { status: state, client, where: where || call.where };
}

/** Whether a call of the turn waits for the user, in the panel or where it runs. */
export const needsAnswer = (turn: TurnView): boolean =>
  isRunning(turn) && turn.blocks.some((block) => block.kind === "call" && !block.done && block.status === "waiting");

/** Whether the panel shows an open approval of the turn. */
export const hasOpenApproval = (turn: TurnView): boolean =>
  turn.blocks.some((block) => block.kind === "call" && block.approval?.decision === "" && !block.done);

/** Add output to a call. Only the latest output is kept, because a program may print without end. */
function appendOutput(call: CallBlock, text: string): Partial<CallBlock> {
  const all = call.output + text;
  if (all.length <= KEPT_OUTPUT * 2) return { output: all };
  return { output: all.slice(-KEPT_OUTPUT), cut: call.cut + all.length - KEPT_OUTPUT };
}

/** Mark an open text at the end as complete; calls end by their own events. */
function closeText(blocks: readonly Block[]): readonly Block[] {
  const last = blocks.at(-1);
  if (!last || last.done || last.kind === "call") return blocks;
  return [...blocks.slice(0, -1), { ...last, done: true }];
}

/** Complete the blocks of a finished turn: open calls become interrupted. */
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
    corrects: null,
    done: false,
  };
}

/** The ending of the id of a correction: a call that repeats a failed call with a program that agent-kernel has
 * corrected without the model. */
const CORRECTION = "-fix";

/** Add a call that started. If it is a correction, it replaces the failed call that it corrects, which it keeps in
 * `corrects`. */
function startCall(blocks: readonly Block[], call: CallBlock): readonly Block[] {
  const corrected = call.id.endsWith(CORRECTION) ? call.id.slice(0, -CORRECTION.length) : "";
  const failed = blocks.find((block) => block.kind === "call" && block.id === corrected);
  if (failed?.kind !== "call") return [...blocks, call];
  return [...blocks.filter((block) => block !== failed), { ...call, corrects: failed }];
}

const callWithoutStart = (body: Bodies["call.finished"], time: number): CallBlock =>
  newCall({ ...body, arguments: {}, where: "" }, time);

function updateCall(turn: TurnView, id: string, change: (call: CallBlock) => Partial<CallBlock>): readonly Block[] {
  return turn.blocks.map((block) =>
    block.kind === "call" && block.id === id ? { ...block, ...change(block) } : block,
  );
}

function addNotice(
  blocks: readonly Block[],
  seq: number,
  { level, text, details }: Bodies["notice"],
): readonly Block[] {
  return [...closeText(blocks), { kind: "notice", id: `notice-${seq}`, level, text, details, done: true }];
}
