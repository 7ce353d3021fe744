/** The notebook in front, in JupyterLab and Notebook 7. It makes its signals with the panel's own function: those of
 * another copy of the library would not be heard. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import { NotebookActions, type INotebookTracker, type NotebookPanel } from "@jupyterlab/notebook";
import type { Signal } from "@preact/signals";
import type { Bound, CellView, NotebookHost } from "../notebook/notebook";
import { LabChanges } from "./changes";

export class LabNotebook implements NotebookHost {
  readonly bound: Signal<Bound | null>;
  readonly activeCell: Signal<CellView | null>;
  readonly selectedCells: Signal<readonly CellView[]>;
  readonly changes: LabChanges;

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly tracker: INotebookTracker,
    signal: <Value>(value: Value) => Signal<Value>,
  ) {
    this.bound = signal<Bound | null>(null);
    this.activeCell = signal<CellView | null>(null);
    this.selectedCells = signal<readonly CellView[]>([]);
    this.changes = new LabChanges(tracker, signal);
    tracker.currentChanged.connect(() => this.#attach());
    tracker.activeCellChanged.connect(() => this.#cells());
    tracker.selectionChanged.connect(() => this.#cells());
    this.#attach();
  }

  insert(source: string, where: "above" | "below" | "replace"): Promise<string> {
    const content = this.#panel?.content;
    if (!content?.model) return Promise.reject(new Error("There is no notebook open."));
    if (where === "above") NotebookActions.insertAbove(content);
    if (where === "below") NotebookActions.insertBelow(content);
    const cell = content.activeCell;
    if (!cell) return Promise.reject(new Error("The notebook has no cell that is active."));
    cell.model.sharedModel.setSource(source);
    return Promise.resolve(cell.model.id);
  }

  reveal(cell: string): void {
    const content = this.#panel?.content;
    const index = content?.widgets.findIndex((widget) => widget.model.id === cell) ?? -1;
    if (content && index >= 0) {
      content.activeCellIndex = index;
      void content.scrollToItem(index);
    }
  }

  focus(): void {
    if (this.#panel) this.app.shell.activateById(this.#panel.id);
  }

  async startKernel(): Promise<void> {
    await this.#panel?.sessionContext.startKernel();
  }

  get #panel(): NotebookPanel | null {
    return this.tracker.currentWidget;
  }

  #attach(): void {
    const panel = this.#panel;
    const context = panel?.sessionContext;
    const told = () => {
      if (panel !== this.#panel) return;
      const kernel = context?.session?.kernel;
      this.bound.value = panel && {
        path: panel.context.localPath,
        kernel: kernel?.id ?? "",
        kernelName: kernel?.name ?? "",
        kernelState: state(kernel?.status),
      };
    };
    context?.kernelChanged.connect(told);
    context?.statusChanged.connect(told);
    panel?.context.pathChanged.connect(told);
    told();
    this.#cells();
  }

  #cells(): void {
    const content = this.#panel?.content;
    const views = (content?.widgets ?? []).flatMap((cell, index) =>
      content?.isSelectedOrActive(cell)
        ? [
            {
              id: cell.model.id,
              index,
              type: cell.model.type as CellView["type"],
              source: cell.model.sharedModel.getSource(),
              output: "",
            },
          ]
        : [],
    );
    this.selectedCells.value = views;
    this.activeCell.value = views.find((view) => view.index === content?.activeCellIndex) ?? null;
  }
}

function state(status: string | undefined): Bound["kernelState"] {
  if (!status) return "none";
  if (status === "idle" || status === "busy" || status === "dead") return status;
  return status.includes("restarting") ? "restarting" : "starting";
}
