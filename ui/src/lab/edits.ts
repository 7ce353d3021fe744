/** Edits of an open notebook, each one undoable step of its shared model. An edit is made only if the cell has not
 * changed since the edit was requested. Nothing here saves a file. */
import type { ISharedCell, ISharedNotebook, SharedCell } from "@jupyter/ydoc";
import type { Change, ProposedChange } from "../turn/cellChanges";
import type { Obstacle, Outcome, Standing } from "../notebook/notebook";
import { trans } from "../translation/translation";
import type { Facts, Json } from "../wire/schema";

export const TAG = "agent_kernel";

/** An edit that was refused. The model reads the message; `reason` is shown to the user if the user asked for the
 * edit. */
export class EditRefused extends Error {
  constructor(
    message: string,
    readonly reason = message,
  ) {
    super(message);
  }
}

export interface EditResult {
  cell: string;
  index: number;
  kept?: Facts;
}

/** The tool call that an edit comes from. `accepted`: the user has approved exactly this edit. */
export interface Origin {
  turn: string;
  call: string;
  accepted?: boolean;
}

interface Tag extends Origin {
  made?: boolean;
  edited?: boolean;
}

export function insert(notebook: ISharedNotebook, given: Facts, origin: Origin): EditResult {
  const index = placeBelow(notebook, word(given["below"]));
  const tag = { ...origin, made: true };
  const cell = { cell_type: word(given["type"]) || "code", source: word(given["after"]), metadata: { [TAG]: tag } };
  step(notebook, () => notebook.insertCell(index, cell));
  return { cell: notebook.getCell(index).id, index };
}

export function edit(notebook: ISharedNotebook, given: Facts, origin: Origin): EditResult {
  const { cell, index } = findUnchanged(notebook, given);
  checkAllowed(cell, "editable", "edited");
  const tag = tagOf(cell);
  step(cell, () => {
    replaceSource(cell, word(given["after"]));
    cell.setMetadata(TAG, { ...origin, ...(tag?.made ? { made: true } : { edited: true }) });
  });
  return { cell: cell.id, index };
}

export function remove(notebook: ISharedNotebook, given: Facts): EditResult {
  const { cell, index } = findUnchanged(notebook, given);
  checkAllowed(cell, "deletable", "deleted");
  const { id } = cell; // read before the deletion, because a deleted cell has none
  const kept = cell.toJSON() as Facts;
  step(notebook, () => notebook.deleteCell(index));
  return { cell: id, index, kept };
}

export function move(notebook: ISharedNotebook, given: Facts): EditResult {
  const { cell, index } = findUnchanged(notebook, given);
  const id = cell.id;
  const to = movedTo(index, placeBelow(notebook, word(given["below"])));
  step(notebook, () => notebook.moveCell(index, to));
  return { cell: id, index: to };
}

/** The status of a change, found out by comparing it with the notebook. */
export function standing(notebook: ISharedNotebook, change: Change): Standing {
  const { cell } = find(notebook, change.cell);
  if (change.do === "delete") return cell ? "undone" : "open";
  if (!cell) return "gone";
  if (change.do === "move") return idAbove(notebook, change.cell) === change.below ? "open" : "undone";
  const source = cell.getSource();
  if (change.do === "edit" && source === change.before) return "undone";
  if (source !== change.after) return "touched";
  return tagOf(cell)?.accepted ? "accepted" : "open";
}

export function obstacle(notebook: ISharedNotebook, change: ProposedChange): Obstacle {
  const isInsert = change.do === "insert";
  const needed = isInsert ? change.below : change.cell;
  if (!needed) return "";
  const { cell } = find(notebook, needed);
  if (!cell) return "gone";
  return isInsert || cell.getSource() === change.before ? "" : "changed";
}

/** Current index of the cell of a change; -1 if it is not there. */
export function place(notebook: ISharedNotebook, change: Change): number {
  return find(notebook, change.cell).index;
}

export function accept(notebook: ISharedNotebook, changes: readonly Change[]): void {
  notebook.transact(() => {
    for (const change of changes) {
      const { cell } = find(notebook, change.cell);
      const tag = cell && tagOf(cell);
      if (cell && tag && standing(notebook, change) === "open") cell.setMetadata(TAG, { ...tag, accepted: true });
    }
  }, false);
}

/** Undo changes as one step, the last one first. Cells that the user has changed since stay as they are. Outcomes are
 * in the order of `changes`. */
export function undo(notebook: ISharedNotebook, changes: readonly Change[]): Outcome[] {
  const outcomes: Outcome[] = [];
  const { undoManager } = notebook as Undoable;
  undoManager?.stopCapturing();
  for (const change of changes.toReversed()) {
    // Each change has its own transaction, because the list of cells is only updated after one ends. The undo manager
    // merges transactions that follow each other quickly into one step.
    notebook.transact(() => outcomes.unshift({ change, ...undoOne(notebook, change) }));
  }
  undoManager?.stopCapturing();
  return outcomes;
}

function undoOne(notebook: ISharedNotebook, change: Change): Omit<Outcome, "change"> {
  const skip = (why: string) => ({ done: false, why });
  const needless = (why: string) => ({ done: false, why, needless: true });
  if (change.lost) return skip(change.lost);
  const { cell, index } = find(notebook, change.cell);
  if (change.do === "delete") {
    if (cell) return needless(trans.__("it already exists again"));
    notebook.insertCell(placeAgain(notebook, change), restoreCell(change));
    return { done: true, why: "" };
  }
  if (!cell && change.do === "insert") return needless(trans.__("it has already been deleted"));
  if (!cell) return skip(trans.__("it has been deleted"));
  if (change.do === "move") {
    if (idAbove(notebook, change.cell) !== change.below) return skip(trans.__("it has been moved"));
    if (change.from && !find(notebook, change.from).cell)
      return skip(trans.__("the cell above its former place has been deleted"));
    notebook.moveCell(index, movedTo(index, placeBelow(notebook, change.from)));
    return { done: true, why: "" };
  }
  const source = cell.getSource();
  if (change.do === "edit" && source === change.before)
    return needless(trans.__("it already has the text from before the change"));
  if (source !== change.after) return skip(trans.__("you have changed it"));
  if (change.do === "insert") {
    notebook.deleteCell(index);
  } else {
    replaceSource(cell, change.before);
    cell.deleteMetadata(TAG);
  }
  return { done: true, why: "" };
}

function restoreCell(change: Change): SharedCell.Cell {
  const cell = change.kept ?? { cell_type: change.type || "code", source: change.before, metadata: {} };
  return { ...cell, id: change.cell } as SharedCell.Cell;
}

function placeAgain(notebook: ISharedNotebook, change: Change): number {
  if (!change.from) return 0;
  const { index } = find(notebook, change.from);
  return index < 0 ? Math.min(Math.max(change.index, 0), notebook.cells.length) : index + 1;
}

const word = (value: Json | undefined): string => (typeof value === "string" ? value : "");

function find(notebook: ISharedNotebook, id: string): { cell: ISharedCell | null; index: number } {
  const index = notebook.cells.findIndex((cell) => cell.id === id);
  return { cell: notebook.cells[index] ?? null, index };
}

function idAbove(notebook: ISharedNotebook, id: string): string {
  return notebook.cells[find(notebook, id).index - 1]?.id ?? "";
}

/** Index of a cell after its move. `from` is its index before the move. `to` is the gap between cells to which it
 * moves, counted while the cell is still at its old place: gap 0 is above the first cell. */
const movedTo = (from: number, to: number): number => (to > from ? to - 1 : to);

/** The index directly below the cell `id`; 0 for an empty id. Throws EditRefused if the cell does not exist. */
function placeBelow(notebook: ISharedNotebook, id: string): number {
  if (!id) return 0;
  const { index } = find(notebook, id);
  if (index < 0) throw new EditRefused(`Cell ${id} is gone; look at notebook_cells and name another place.`);
  return index + 1;
}

function findUnchanged(notebook: ISharedNotebook, given: Facts): { cell: ISharedCell; index: number } {
  const id = word(given["cell"]);
  const { cell, index } = find(notebook, id);
  if (!cell)
    throw new EditRefused(`Cell ${id} is gone; look at notebook_cells.`, trans.__("The cell has been deleted."));
  if (cell.getSource() !== given["before"]) {
    throw new EditRefused(
      `Cell ${index} (${id}) was changed meanwhile, so nothing was done. Read it again: read_cells.`,
      trans.__("The cell has been changed, so its text stays."),
    );
  }
  return { cell, index };
}

function checkAllowed(cell: ISharedCell, key: "editable" | "deletable", word: string): void {
  if (cell.getMetadata(key) === false)
    throw new EditRefused(
      `The cell is marked as not to be ${word}; leave it as it is.`,
      trans.__("The notebook protects this cell from changes."),
    );
}

function tagOf(cell: ISharedCell): Tag | null {
  const tag = cell.getMetadata(TAG) as unknown;
  return tag !== null && typeof tag === "object" ? (tag as Tag) : null;
}

/** Replace only the part that differs, so that cursors and selections elsewhere in the cell stay. */
function replaceSource(cell: ISharedCell, text: string): void {
  const old = cell.getSource();
  let head = 0;
  while (head < old.length && head < text.length && old[head] === text[head]) head++;
  let tail = 0;
  const most = Math.min(old.length, text.length) - head;
  while (tail < most && old.at(-1 - tail) === text.at(-1 - tail)) tail++;
  if (isLow(old, old.length - tail) || isLow(text, text.length - tail)) tail = Math.max(0, tail - 1);
  if (isLow(old, head) || isLow(text, head)) head--;
  if (head < 0 || tail < 0) [head, tail] = [0, 0];
  cell.updateSource(head, old.length - tail, text.slice(head, text.length - tail));
}

/** Whether cutting the text at this offset would split a surrogate pair. */
const isLow = (text: string, at: number): boolean => (text.charCodeAt(at) & 0xfc00) === 0xdc00;

interface Undoable {
  undoManager?: { stopCapturing(): void } | null;
}

/** Run `work` as one undo step of its own, not merged with what the user does just before or after it. `work` must not
 * pause between its changes: after a pause the undo manager starts another step. */
export function asUndoStep<Result>(shared: ISharedNotebook | ISharedCell, work: () => Result): Result {
  const { undoManager } = shared as Undoable;
  undoManager?.stopCapturing();
  const result = work();
  undoManager?.stopCapturing();
  return result;
}

/** Like `asUndoStep`, in one transaction. */
function step(shared: ISharedNotebook | ISharedCell, work: () => void): void {
  asUndoStep(shared, () => shared.transact(work));
}
