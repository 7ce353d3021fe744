/** The notebook that the panel is beside, as its host knows it. The panel asks; only the host touches the document. */
import type { ReadonlySignal } from "@preact/signals";

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

export interface NotebookHost {
  /** The notebook in front, null without one. */
  readonly bound: ReadonlySignal<Bound | null>;
  readonly activeCell: ReadonlySignal<CellView | null>;
  readonly selectedCells: ReadonlySignal<readonly CellView[]>;
  /** The cell whose error is the newest; null when none shows one, absent where the host does not look. */
  readonly lastError?: ReadonlySignal<CellView | null>;
  /** Above or below the active cell, or in its place. Resolves with the id of the cell. */
  insert(source: string, where: "above" | "below" | "replace"): Promise<string>;
  reveal(cell: string): void;
  /** Gives the keyboard back to the notebook. */
  focus(): void;
  startKernel(): Promise<void>;
}
