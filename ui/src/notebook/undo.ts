/** Undoes the cell changes of a whole turn, and describes what could not be undone. */
import type { TurnView } from "../turn/turn";
import { type Change, changesOf, effectsOf } from "../turn/cellChanges";
import { cellName } from "../turn/cellName";
import type { ChangeKeeper, NotebookHost, Outcome } from "./notebook";
import { trans } from "../translation/translation";

/** Whether `undoTurn` could undo anything. */
export function canUndo(host: NotebookHost | null, turn: TurnView): boolean {
  const keeper = host?.changes;
  return !!keeper && changesOf(turn).some((change) => isUndoable(keeper, change));
}

/** Whether the notebook no longer has what this kind of change did to the cell in `turn`: the cell is as it was before
 * the first such change, or it is gone and the turn had inserted it. */
export function isUndone(keeper: ChangeKeeper | undefined, turn: TurnView, change: Change): boolean {
  const all = changesOf(turn).filter((other) => other.cell === change.cell);
  const first = all.find((other) => other.do === change.do) ?? change;
  const standing = keeper?.standing(first);
  return standing === "undone" || (standing === "gone" && all.some((other) => other.do === "insert"));
}

/** Undo the cell changes of a turn. Returns sentences for the user that say what was undone and what was not. */
export function undoTurn(host: NotebookHost | null, turn: TurnView): string[] {
  const changes = changesOf(turn);
  const outcomes: Outcome[] =
    host?.changes?.undo(changes) ?? changes.map((change) => ({ change, done: false, why: closedReason() }));
  const done = outcomes.filter((outcome) => outcome.done);
  const skipped = outcomes.filter((outcome) => !outcome.done && !outcome.needless);
  const cells = new Set(done.map((outcome) => outcome.change.cell)).size;
  const left = effectsOf(turn);
  return [
    cells === 0 ? trans.__("Nothing was undone.") : trans._n("Undone in one cell.", "Undone in %1 cells.", cells),
    ...skipped.map(({ change, why }) => trans.__("%1 was not undone: %2.", nameOf(host, change), why)),
    ...(left.length > 0 ? [trans.__("Not undone: %1.", left.join("; "))] : []),
  ];
}

/** Undo one change. Returns why it was not undone, or "". */
export function undoChange(keeper: ChangeKeeper | undefined, change: Change): string {
  const [outcome] = keeper?.undo([change]) ?? [];
  return outcome && !outcome.done ? trans.__("Not undone: %1.", outcome.why) : "";
}

export const closedReason = (): string => trans.__("its notebook is not open here");

/** The name of the changed cell, such as "Cell 3", by its current number. If the cell is gone, its number at the time
 * of the change is used. */
function nameOf(host: NotebookHost | null, change: Change): string {
  const place = host?.changes?.place(change) ?? -1;
  const name = cellName(place >= 0 ? place : change.index);
  return name.charAt(0).toUpperCase() + name.slice(1);
}

function isUndoable(keeper: ChangeKeeper, change: Change): boolean {
  const standing = keeper.standing(change);
  return standing === "open" || standing === "accepted";
}
