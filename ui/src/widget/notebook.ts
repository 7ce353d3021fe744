/** The notebook host of a panel in the output of a cell. The page may be any front end, whose cells the panel cannot
 * reach, so nothing can be inserted or selected. */
import { signal } from "@preact/signals";
import type { Bound, CellView, NotebookHost } from "../notebook/notebook";
import { trans } from "../translation/translation";

export class WidgetNotebook implements NotebookHost {
  readonly bound = signal<Bound | null>(null);
  readonly activeCell = signal<CellView | null>(null);
  readonly selectedCells = signal<readonly CellView[]>([]);

  /** `apart`: the panel is connected through the kernel. The server then never runs code of a turn in the kernel, only
   * in the sandbox. */
  constructor(
    kernel: string,
    path: string,
    readonly apart = false,
  ) {
    this.bound.value = { path, kernel, kernelName: "", kernelState: "idle" };
  }

  insert(): Promise<string> {
    return Promise.reject(new Error(trans.__("A panel in a cell cannot change the notebook. Copy the code instead.")));
  }

  reveal(): void {
    // The widget cannot reach the cells of the page.
  }

  focus(): void {
    (document.activeElement as HTMLElement | null)?.blur();
  }

  startKernel(): Promise<void> {
    return Promise.reject(new Error(trans.__("Start the kernel in the notebook and run the cell again.")));
  }
}
