/** The notebook beside the panel, as its host provides it. Only the host changes the document. */
import type { ReadonlySignal } from "@preact/signals";
import type { Change, ProposedChange } from "../turn/cellChanges";

export interface Bound {
  /** Path of the notebook, relative to the contents root; empty for a kernel without a notebook. */
  path: string;
  /** Id of the kernel; empty without a kernel. */
  kernel: string;
  kernelName: string;
  kernelState: "idle" | "busy" | "starting" | "restarting" | "dead" | "none";
}

/** A cell of the open notebook. `source` and `index` are those in the open document, which may not be saved; `output`
 * is text, for the user and the model. */
export interface CellView {
  id: string;
  index: number;
  type: "code" | "markdown" | "raw";
  source: string;
  metadata?: unknown;
  output: string;
}

/** The status of a change by the agent: open (not accepted yet), accepted, undone, touched (the user changed the cell
 * since), gone (the cell does not exist), closed (the notebook is not open in this page). */
export type Standing = "open" | "accepted" | "undone" | "touched" | "gone" | "closed";

/** Why a proposed change cannot be made: "changed" if the text of the cell is no longer the one that the proposal
 * replaces, "gone" if a cell that the change needs no longer exists. Empty if the change can be made. */
export type Obstacle = "" | "changed" | "gone";

export interface Outcome {
  change: Change;
  done: boolean;
  /** Why the change was not undone, as a text for the user; empty if it was. */
  why: string;
  /** Whether there was nothing to undo, because the document is already as it was before the change. */
  needless?: boolean;
}

/** Review and undo of the agent's changes in open notebooks. */
export interface ChangeKeeper {
  /** Increases when an open notebook changes: call the methods again, because their results may be out of date. */
  readonly version: ReadonlySignal<number>;
  standing(change: Change): Standing;
  /** Why a proposed change cannot be made. `notebook` is the path of the notebook in which it would be made. */
  obstacle(change: ProposedChange, notebook: string): Obstacle;
  /** Current index of the cell of a change; -1 if the cell is not there. */
  place(change: Change): number;
  /** Undo changes as one step of the notebook's own undo. Cells that the user has changed since stay. */
  undo(changes: readonly Change[]): Outcome[];
  accept(changes: readonly Change[]): void;
  /** Make a proposed edit that the user has accepted. Returns why it was not made, or "". */
  apply(change: Change): string;
}

/** Where something is drawn at a cell: below its input, below or above the whole cell, or beside its prompt. */
export type CellSide = "input" | "below" | "above" | "margin";

/** A cell that has the mark of the agent in its metadata. The file may come from anybody, so the ids are not trusted. */
export interface WrittenCell {
  cell: string;
  turn: string;
  /** Whether the agent added the cell; otherwise it changed it. */
  made: boolean;
}

/** Places in the current notebook where the panel draws beside the cells. Nothing that is drawn there becomes part of
 * the file. */
export interface NotebookPlaces {
  /** Increases when the notebook or its cells were replaced, drawn or changed; the elements must then be requested
   * again with `at`. */
  readonly version: ReadonlySignal<number>;
  /** Ids of the cells in their order. */
  cells(): readonly string[];
  written(): readonly WrittenCell[];
  /** The element for `key` at a cell, made if it does not exist; null if the cell does not exist or is not drawn yet. A
   * key keeps its element while JupyterLab draws the cell again. */
  at(key: string, cell: string, side: CellSide): HTMLElement | null;
  remove(key: string): void;
  /** The bar below the notebook; null without a notebook. */
  bar(): HTMLElement | null;
  removeBar(): void;
  /** Scroll to a cell. The focus stays where it is. */
  scrollTo(cell: string): Promise<void>;
  /** Move the focus to a cell, or into its editor. */
  focus(cell: string, within?: "editor"): void;
}

/** The result of correcting a failed cell in its kernel: the edit to propose, or null, and what the user reads. */
export interface Fix {
  change: Change | null;
  message: string;
}

export interface NotebookHost {
  /** The current notebook; null without one. */
  readonly bound: ReadonlySignal<Bound | null>;
  readonly activeCell: ReadonlySignal<CellView | null>;
  readonly selectedCells: ReadonlySignal<readonly CellView[]>;
  /** The cell with the newest error; null if there is none. Absent if the host does not support it. */
  readonly lastError?: ReadonlySignal<CellView | null>;
  /** Id of the agent cell that runs and waits for input from the user; empty for none. Absent if the host does not
   * support it. */
  readonly asking?: ReadonlySignal<string>;
  /** Insert a cell with `source` above or below the active cell, or replace the text of the active cell. Resolves with
   * the id of the cell. */
  insert(source: string, where: "above" | "below" | "replace"): Promise<string>;
  reveal(cell: string): void;
  /** Return the focus to the notebook. */
  focus(): void;
  startKernel(): Promise<void>;
  /** Correct a failed cell in its kernel, which tries candidates in a draft. `words` is what the user adds to the
   * request. Resolves with null if the kernel cannot do that. Absent if the host does not support it. */
  fix?(cell: string, words: string): Promise<Fix | null>;
  /** Whether code of the agent's turns runs only in the sandbox, never in this notebook's kernel. */
  readonly apart?: boolean;
  /** Review and undo of changes. Absent if the host cannot change cells. */
  readonly changes?: ChangeKeeper;
  /** Places in the notebook for the review. Absent if the host cannot draw in cells. */
  readonly places?: NotebookPlaces;
}
