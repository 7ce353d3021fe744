/** The changes of cells that the notebook shows for review: those that wait for an approval, and those that were made
 * and are not accepted yet. They are derived from the turns and the document; the functions have no side effects. */
import type { CellSide, ChangeKeeper } from "../notebook/notebook";
import {
  type Change,
  changesOf,
  isApproved,
  isSuperseded,
  proposedChange,
  type CellChangeKind,
} from "../turn/cellChanges";
import type { Approval, CallBlock, TurnView } from "../turn/turn";

export interface ReviewItem {
  /** Identifies the item and its element in the notebook; made of the ids of the turn and the call. */
  key: string;
  turn: string;
  call: string;
  do: CellChangeKind;
  /** The cell at which the item is shown, and the place at this cell (`side`). */
  cell: string;
  side: CellSide;
  type: string;
  before: string;
  after: string;
  /** For an inserted or moved cell: the id of the cell above its place; empty for the top. */
  below: string;
  /** The question about a proposed change; null for a change that was made. */
  approval: Approval | null;
  /** The change that was made; null for a proposed change. */
  change: Change | null;
  /** The proposed correction of a failed cell; null for other changes. */
  correction: Change | null;
}

interface ReviewInput {
  turns: readonly TurnView[];
  keeper: ChangeKeeper | undefined;
  /** The proposed corrections of failed cells, in the order in which they were asked for. */
  corrections: readonly Change[];
  /** Ids of the cells of the notebook, in their order. */
  cells: readonly string[];
  /** Whether the turn ran while this page was open. */
  isLive: (turn: string) => boolean;
  /** Keys of items that the user has hidden in this page. */
  dismissed: ReadonlySet<string>;
}

/** The items to review, in the order of the cells at which they are shown. */
export function itemsOf(input: ReviewInput): ReviewItem[] {
  const all = input.turns.flatMap((turn) => [
    ...proposedItems(turn, input.cells),
    ...correctionItems(turn, input),
    ...madeItems(turn, input),
  ]);
  const place = new Map(input.cells.map((cell, index) => [cell, index]));
  return all.filter((item) => place.has(item.cell)).sort((a, b) => (place.get(a.cell) ?? 0) - (place.get(b.cell) ?? 0));
}

function proposedItems(turn: TurnView, cells: readonly string[]): ReviewItem[] {
  return turn.blocks.flatMap((block) => {
    if (block.kind !== "call" || block.done || block.approval?.decision !== "") return [];
    const change = proposedChange(block.approval.name, block.approval.arguments);
    if (!change) return [];
    const at =
      change.do === "insert" ? insertPlace(change.below, cells) : { cell: change.cell, side: "input" as const };
    return [{ ...named(turn, block), ...change, ...at, approval: block.approval, change: null, correction: null }];
  });
}

function madeItems(turn: TurnView, { keeper, cells, isLive, dismissed }: ReviewInput): ReviewItem[] {
  if (!keeper) return [];
  const calls = new Map(turn.blocks.flatMap((block) => (block.kind === "call" ? [[block.id, block] as const] : [])));
  return changesOf(turn).flatMap((change) => {
    const call = calls.get(change.call);
    if (!call || isApproved(call) || change.lost || isSuperseded(turn, change)) return [];
    if (dismissed.has(keyOf(turn.id, call.id)) || keeper.standing(change) !== "open") return [];
    const hasTag = change.do === "insert" || change.do === "edit";
    if (!hasTag && !isLive(turn.id)) return []; // the document has no mark of such a change
    const at = change.do === "delete" ? insertPlace(change.from, cells) : { cell: change.cell, side: "input" as const };
    const { type, before, after, below } = change;
    const texts = { do: change.do, type, before, after, below };
    return [{ ...named(turn, call), ...texts, ...at, approval: null, change, correction: null }];
  });
}

/** The newest correction of each cell that still has the source that failed. */
function correctionItems(turn: TurnView, { keeper, corrections }: ReviewInput): ReviewItem[] {
  const open = corrections.filter((one) => keeper?.standing(one) === "undone");
  return open
    .filter((one, at) => one.turn === turn.id && !open.slice(at + 1).some((later) => later.cell === one.cell))
    .map((correction) => {
      const { call, cell, type, before, after, below } = correction;
      const names = { key: keyOf(turn.id, call), turn: turn.id, call };
      const texts = { do: "edit" as const, type, before, after, below };
      return { ...names, ...texts, cell, side: "input", approval: null, change: null, correction };
    });
}

const keyOf = (turn: string, call: string): string => `${turn} ${call}`;
const named = (turn: TurnView, call: CallBlock) => ({ key: keyOf(turn.id, call.id), turn: turn.id, call: call.id });

/** Where the item of a cell is shown that is not in the notebook: below the cell that it follows, or above the first
 * cell if it follows none. */
function insertPlace(below: string, cells: readonly string[]): { cell: string; side: CellSide } {
  return below ? { cell: below, side: "below" } : { cell: cells[0] ?? "", side: "above" };
}
