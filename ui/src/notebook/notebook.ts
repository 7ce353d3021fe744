/** The notebook that the panel is beside, as its host knows it. The panel asks; only the host touches the document. */
import type { ReadonlySignal } from "@preact/signals";
import type { Change } from "../turn/cellChanges";

export interface Bound {
  /** Below the contents root; empty for a kernel without a notebook. */
  path: string;
  /** Empty while there is none. */
  kernel: string;
  kernelName: string;
  kernelState: "idle" | "busy" | "starting" | "restarting" | "dead" | "none";
}

/** `source` and `index` as they are in the live document; `output` in words, for a person and the model. */
export interface CellView {
  id: string;
  index: number;
  type: "code" | "markdown" | "raw";
  source: string;
  output: string;
}

/** How a change of the agent stands now: open (nobody has said yes to it), accepted, undone, touched (a person changed
 * the cell since), gone (the cell), closed (the notebook is not open in this page). */
export type Standing = "open" | "accepted" | "undone" | "touched" | "gone" | "closed";

export interface Outcome {
  change: Change;
  done: boolean;
  /** Why not. */
  why: string;
}

/** The agent's changes of the open notebooks, reviewed and taken back. */
export interface ChangeKeeper {
  /** Grows when an open notebook changes: what was told of changes may be old then. */
  readonly version: ReadonlySignal<number>;
  standing(change: Change): Standing;
  /** Where its cell is now, from 0; -1: nowhere. */
  place(change: Change): number;
  /** As one step that the notebook's own undo takes back; what a person touched since stays. */
  undo(changes: readonly Change[]): Outcome[];
  accept(changes: readonly Change[]): void;
}

export interface NotebookHost {
  /** The notebook in front, null without one. */
  readonly bound: ReadonlySignal<Bound | null>;
  readonly activeCell: ReadonlySignal<CellView | null>;
  readonly selectedCells: ReadonlySignal<readonly CellView[]>;
  /** The cell whose error is the newest; null when none shows one, absent where the host does not look. */
  readonly lastError?: ReadonlySignal<CellView | null>;
  /** The cell of the agent that waits for the person to type; empty: none. Absent where the host does not look. */
  readonly asking?: ReadonlySignal<string>;
  /** Above or below the active cell, or in its place. Resolves with the id of the cell. */
  insert(source: string, where: "above" | "below" | "replace"): Promise<string>;
  reveal(cell: string): void;
  /** Gives the keyboard back to the notebook. */
  focus(): void;
  startKernel(): Promise<void>;
  /** Nobody runs the agent's code in the kernel of this notebook; it goes into the sandbox. */
  readonly apart?: boolean;
  /** Absent where the host can not change cells. */
  readonly changes?: ChangeKeeper;
}
