/** Undoes the cell changes of a whole turn, and describes what could not be undone. */
import type { TurnView } from "../turn/turn";
import { type Change, changesOf, effectsOf } from "../turn/cellChanges";
import { cellName } from "../turn/cellName";
import type { ChangeKeeper, NotebookHost, Outcome } from "./notebook";

export interface Undone {
  done: number;
  skipped: Outcome[];
  /** Sentences for the user. */
  words: string[];
}

const ALREADY = new Set(["it says again what it said before", "it is gone already", "it is there again already"]);

/** Whether `undoTurn` could undo anything. */
export function canUndo(host: NotebookHost | null, turn: TurnView): boolean {
  const keeper = host?.changes;
  return !!keeper && changesOf(turn).some((change) => isUndoable(keeper, change));
}

/** Works for stored turns and for new ones. */
export function undoTurn(host: NotebookHost | null, turn: TurnView): Undone {
  const changes = changesOf(turn);
  const outcomes = host?.changes?.undo(changes) ?? changes.map((change) => ({ change, done: false, why: CLOSED }));
  const done = outcomes.filter((outcome) => outcome.done);
  const skipped = outcomes.filter((outcome) => !outcome.done && !ALREADY.has(outcome.why));
  const cells = new Set(done.map((outcome) => outcome.change.cell)).size;
  const left = effectsOf(turn);
  return {
    done: done.length,
    skipped,
    words: [
      cells === 0 ? "Nothing was undone." : `Undone in ${cells === 1 ? "one cell" : `${cells} cells`}.`,
      ...skipped.map(({ change, why }) => `${nameOf(host, change)} was not undone: ${why}.`),
      ...(left.length > 0 ? [`Not undone: ${left.join("; ")}.`] : []),
    ],
  };
}

export const CLOSED = "its notebook is not open here";

/** "Cell 3" as the notebook counts; where the cell was, if it is gone. */
function nameOf(host: NotebookHost | null, change: Change): string {
  const place = host?.changes?.place(change) ?? -1;
  return cellName(place >= 0 ? place : change.index).replace("c", "C");
}

function isUndoable(keeper: ChangeKeeper, change: Change): boolean {
  const standing = keeper.standing(change);
  return standing === "open" || standing === "accepted";
}
