/** The notebook beside the panel, as its host provides it. Only the host changes the document. */
import type { ReadonlySignal } from "@preact/signals";
import type { Change } from "../turn/cellChanges";

export interface Bound {
  /** Relative to the contents root; empty for a kernel without a notebook. */
  path: string;
  /** Empty without a kernel. */
  kernel: string;
  kernelName: string;
  kernelState: "idle" | "busy" | "starting" | "restarting" | "dead" | "none";
}

/** `source` and `index` are those in the live document; `output` is text, for the user and the model. */
export interface CellView {
  id: string;
  index: number;
  type: "code" | "markdown" | "raw";
  source: string;
  output: string;
}

/** The status of a change by the agent: open (not accepted yet), accepted, undone, touched (the user changed the cell
 * since), gone (the cell does not exist), closed (the notebook is not open in this page). */
export type Standing = "open" | "accepted" | "undone" | "touched" | "gone" | "closed";

export interface Outcome {
  change: Change;
  done: boolean;
  /** Why it was not done. */
  why: string;
}

/** Review and undo of the agent's changes in open notebooks. */
export interface ChangeKeeper {
  /** Increases when an open notebook changes: earlier results may be out of date. */
  readonly version: ReadonlySignal<number>;
  standing(change: Change): Standing;
  /** Current index of the cell; -1 if it is not there. */
  place(change: Change): number;
  /** Undo changes as one step of the notebook's own undo. Cells that the user has changed since stay. */
  undo(changes: readonly Change[]): Outcome[];
  accept(changes: readonly Change[]): void;
  /** Make an edit that the user accepted before it was made. Returns why it was not made, or "". */
  apply(change: Change): string;
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
  /** Id of the agent's cell that waits for input; empty for none. Absent if the host does not support it. */
  readonly asking?: ReadonlySignal<string>;
  /** Insert above or below the active cell, or replace it. Resolves with the id of the cell. */
  insert(source: string, where: "above" | "below" | "replace"): Promise<string>;
  reveal(cell: string): void;
  /** Return the focus to the notebook. */
  focus(): void;
  startKernel(): Promise<void>;
  /** Correct a failed cell in its kernel, where candidates are tried. Resolves with null if the kernel cannot do that.
   * Absent if the host does not support it. */
  fix?(cell: string, words: string): Promise<Fix | null>;
  /** Whether the agent's code never runs in this notebook's kernel, only in the sandbox. */
  readonly apart?: boolean;
  /** Absent if the host cannot change cells. */
  readonly changes?: ChangeKeeper;
}
