/** The current notebook in JupyterLab and Notebook 7, as preact signals. The caller passes the function that makes the
 * signals, because the panel is a bundle of its own with its own copy of `@preact/signals`: it does not react to
 * signals that this bundle's copy makes. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { Cell } from "@jupyterlab/cells";
import { NotebookActions, type INotebookTracker, type Notebook, type NotebookPanel } from "@jupyterlab/notebook";
import type { Signal } from "@preact/signals";
import type { Bound, CellView, Fix, NotebookHost } from "../notebook/notebook";
import { LabChanges } from "./changes";
import { asUndoStep } from "./edits";
import { fixInKernel } from "./fix";
import { isAgentCell } from "../notebook/agentCells";
import { LabPlaces } from "./places";
import { isCode, lastFailed, outputsOf, words } from "./outputs";
import { trans } from "../translation/translation";

/** Delay after the last change of the notebook before its cells are read again. */
const SETTLED_MS = 150;

export class LabNotebook implements NotebookHost {
  readonly bound: Signal<Bound | null>;
  readonly activeCell: Signal<CellView | null>;
  readonly selectedCells: Signal<readonly CellView[]>;
  readonly lastError: Signal<CellView | null>;
  readonly asking: Signal<string>;
  readonly changes: LabChanges;
  readonly places: LabPlaces;

  #detach: () => void = () => undefined;
  #settling: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly tracker: INotebookTracker,
    signal: <Value>(value: Value) => Signal<Value>,
  ) {
    this.bound = signal<Bound | null>(null);
    this.activeCell = signal<CellView | null>(null);
    this.selectedCells = signal<readonly CellView[]>([]);
    this.lastError = signal<CellView | null>(null);
    this.asking = signal("");
    this.changes = new LabChanges(tracker, signal);
    this.places = new LabPlaces(tracker, signal);
    tracker.currentChanged.connect(() => this.#attach());
    tracker.activeCellChanged.connect(() => this.#cells());
    tracker.selectionChanged.connect(() => this.#cells());
    tracker.widgetAdded.connect((_, panel) => panel.content.modelContentChanged.connect(this.#changed));
    tracker.forEach((panel) => panel.content.modelContentChanged.connect(this.#changed));
    this.#attach();
  }

  insert(source: string, where: "above" | "below" | "replace"): Promise<string> {
    const content = this.#panel?.content;
    if (!content?.model) return Promise.reject(new Error(trans.__("There is no notebook open.")));
    const cell = asUndoStep(content.model.sharedModel, () => {
      if (where === "above") NotebookActions.insertAbove(content);
      if (where === "below") NotebookActions.insertBelow(content);
      content.activeCell?.model.sharedModel.setSource(source);
      return content.activeCell;
    });
    if (!cell) return Promise.reject(new Error(trans.__("The notebook has no active cell.")));
    return Promise.resolve(cell.model.id);
  }

  reveal(cell: string): void {
    const content = this.#panel?.content;
    const [id] = cell.split("#"); // `CELL#2` is the second `%agent ask` line of a cell, `CELL#ID` a correction
    const index = content?.widgets.findIndex((widget) => widget.model.id === id) ?? -1;
    if (content && index >= 0) {
      content.activeCellIndex = index;
      void content.scrollToItem(index);
    }
  }

  focus(): void {
    if (this.#panel) this.app.shell.activateById(this.#panel.id);
  }

  async fix(cell: string, words: string): Promise<Fix | null> {
    const panel = this.#panel;
    const failed = panel?.content.widgets.find((widget) => widget.model.id === cell);
    return panel && isCode(failed) ? await fixInKernel(panel, failed, words) : null;
  }

  async startKernel(): Promise<void> {
    await this.#panel?.sessionContext.startKernel();
  }

  get #panel(): NotebookPanel | null {
    return this.tracker.currentWidget;
  }

  #attach(): void {
    this.#detach();
    const panel = this.#panel;
    const context = panel?.sessionContext;
    let session = context?.session ?? null;
    const asked = (_: unknown, waits: boolean) => {
      this.asking.value = waits ? asker(panel) : "";
    };
    const told = () => {
      if (session !== (context?.session ?? null)) session?.pendingInput.disconnect(asked);
      session = context?.session ?? null;
      session?.pendingInput.connect(asked);
      if (!context?.pendingInput) this.asking.value = "";
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
    this.#detach = () => {
      session?.pendingInput.disconnect(asked);
      this.asking.value = "";
      context?.kernelChanged.disconnect(told);
      context?.statusChanged.disconnect(told);
      panel?.context.pathChanged.disconnect(told);
    };
    told();
    this.#cells();
  }

  readonly #changed = (content: Notebook): void => {
    if (content !== this.#panel?.content) return;
    clearTimeout(this.#settling);
    this.#settling = setTimeout(() => this.#cells(), SETTLED_MS);
  };

  #cells(): void {
    const content = this.#panel?.content;
    const cells = content?.widgets ?? [];
    const chosen = cells.flatMap((cell, index) => (content?.isSelectedOrActive(cell) ? [view(cell, index)] : []));
    this.selectedCells.value = chosen;
    this.activeCell.value = chosen.find(({ index }) => index === content?.activeCellIndex) ?? null;
    const failed = lastFailed(cells);
    this.lastError.value = failed < 0 ? null : view(cells[failed] as Cell, failed);
  }
}

/** Id of the cell that runs now, if it is an agent cell (`isAgentCell`); empty if the user's own code runs. */
function asker(panel: NotebookPanel | null): string {
  const cell = panel?.content.widgets.find(
    (one) =>
      isCode(one) &&
      one.model.executionState === "running" &&
      isAgentCell(one.model.sharedModel.getSource(), one.model.metadata),
  );
  return cell?.model.id ?? "";
}

function view(cell: Cell, index: number): CellView {
  const { id, type, sharedModel, metadata } = cell.model;
  return {
    id,
    index,
    type: type as CellView["type"],
    source: sharedModel.getSource(),
    metadata,
    output: words(outputsOf(cell)),
  };
}

function state(status: string | undefined): Bound["kernelState"] {
  if (!status) return "none";
  if (status === "idle" || status === "busy" || status === "dead") return status;
  return status.includes("restarting") ? "restarting" : "starting";
}
