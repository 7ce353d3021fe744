/** The kernel that a widget belongs to, for the panel. The page around a widget may be any front end: its cells are not
 * in reach, so nothing is inserted or selected there. */
import { signal } from "@preact/signals";
import type { Bound, CellView, NotebookHost } from "../notebook/notebook";

export class WidgetKernel implements NotebookHost {
  readonly bound = signal<Bound | null>(null);
  readonly activeCell = signal<CellView | null>(null);
  readonly selectedCells = signal<readonly CellView[]>([]);

  /** `apart`: the kernel itself asks for the turns, and the server runs nothing in it for them. */
  constructor(
    kernel: string,
    path: string,
    readonly apart = false,
  ) {
    this.bound.value = { path, kernel, kernelName: "", kernelState: "idle" };
  }

  insert(): Promise<string> {
    return Promise.reject(new Error("A panel in a cell can not change the notebook; copy the code instead."));
  }

  reveal(): void {
    // The cells of this page are not in reach.
  }

  focus(): void {
    (document.activeElement as HTMLElement | null)?.blur();
  }

  startKernel(): Promise<void> {
    return Promise.reject(new Error("Start the kernel in the notebook, and run the cell again."));
  }
}
