/** The cell changes of a turn, read from the `details` of its tool calls. These come from events and from the store
 * without a fixed type, so every field is checked. The functions have no side effects. */
import type { CallBlock, TurnView } from "./turn";
import { kindOf, lookupTable } from "./labels";
import { serverText } from "./serverTexts";
import type { Facts, Json } from "../wire/schema";
import { trans } from "../translation/translation";

export type CellChangeKind = "insert" | "edit" | "delete" | "move";

export interface Change {
  call: string;
  turn: string;
  do: CellChangeKind;
  cell: string;
  /** Index of the cell when the change was made. */
  index: number;
  /** Path of the notebook at that time. */
  notebook: string;
  type: string;
  before: string;
  after: string;
  /** Only for inserts and moves: the id of the cell above the changed cell, after the change (`below`) and before the
   * change (`from`); empty if the changed cell was the first. */
  below: string;
  from: string;
  /** The deleted cell in the notebook's file format; null for other changes. */
  kept: Facts | null;
  /** Why `before` and `after` are missing, in which case the change cannot be undone; empty if they are there. */
  lost: string;
}

const DEEDS = lookupTable<CellChangeKind>({
  insert_cell: "insert",
  edit_cell: "edit",
  delete_cell: "delete",
  move_cell: "move",
});

const text = (value: Json | undefined): string => (typeof value === "string" ? value : "");
const facts = (value: Json | undefined): Facts | null =>
  value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;

/** The change that a call has made; null for a call that has not changed a cell. */
export function changeOf(call: Pick<CallBlock, "id" | "name" | "details">): Change | null {
  const told = facts(call.details["change"]);
  const deed = DEEDS.get(call.name);
  if (!told || !deed || !text(told["cell"])) return null;
  return {
    call: call.id,
    turn: text(told["turn"]),
    do: deed,
    cell: text(told["cell"]),
    index: typeof told["index"] === "number" ? told["index"] : -1,
    notebook: text(told["notebook"]),
    type: text(told["type"]),
    before: text(told["before"]),
    after: text(told["after"]),
    below: text(told["below"]),
    from: text(told["from"]),
    kept: facts(told["kept"]),
    lost: serverText(text(told["lost"])),
  };
}

export function changesOf(turn: TurnView): Change[] {
  return calls(turn).flatMap((call) => changeOf(call) ?? []);
}

export type ProposedChange = Pick<Change, "do" | "cell" | "type" | "before" | "after" | "below">;

/** The change that an approval asks about; null for calls that change no cell. */
export function proposedChange(name: string, given: Facts): ProposedChange | null {
  const deed = DEEDS.get(name);
  if (!deed || typeof given["diff"] !== "string") return null;
  const [cell, type, before] = [text(given["cell"]), text(given["type"]), text(given["before"])];
  return { do: deed, cell, type, before, after: text(given["after"]), below: text(given["below"]) };
}

/** Whether the user approved exactly this call. */
export const isApproved = (call: CallBlock): boolean => call.approval?.decision === "approve";

/** Whether a later change of the same turn replaced this one. */
export function isSuperseded(turn: TurnView, change: Change): boolean {
  const all = changesOf(turn);
  const place = all.findIndex((other) => other.call === change.call);
  return all.slice(place + 1).some((other) => other.cell === change.cell && other.do !== "move");
}

const RAN = new Set(["python", "run_cell", "run_cells"]);

/** Descriptions of effects that an undo of the turn does not revert. */
export function effectsOf(turn: TurnView): string[] {
  const done = calls(turn).filter((call) => call.done && !["denied"].includes(call.status));
  const ran = done.filter((call) => RAN.has(call.name) && call.where === "live").length;
  const files = calls(turn).flatMap((call) => call.files).length;
  const words = [];
  if (ran > 0)
    words.push(
      trans._n(
        "code that ran in the kernel (one call), and its variables",
        "code that ran in the kernel (%1 calls), and its variables",
        ran,
      ),
    );
  if (files > 0) words.push(trans._n("a file that was created", "%1 files that were created", files));
  if (done.some((call) => call.name === "shell")) words.push(trans.__("the effects of shell commands"));
  const others = new Set(done.filter((call) => kindOf(call.name) === "tool").map((call) => call.name));
  if (others.size > 0) words.push(trans.__("the effects of %1", [...others].join(", ")));
  return words;
}

/** Descriptions of what remains of a turn that is removed from its conversation. */
export function remainsOf(turn: TurnView): string[] {
  const cells = new Set(changesOf(turn).map((change) => change.cell)).size;
  const changed = cells > 0 ? [trans._n("a changed cell", "%1 changed cells", cells)] : [];
  return [...changed, ...effectsOf(turn)];
}

const calls = (turn: TurnView): CallBlock[] => turn.blocks.filter((block) => block.kind === "call");
