/** The button "Fix with agent" below the output of each cell that failed. */
import type { INotebookTracker, Notebook, NotebookPanel } from "@jupyterlab/notebook";
import type { Cell, CodeCell } from "@jupyterlab/cells";
import { isAgentCell } from "../notebook/agentCells";
import { trans } from "../translation/translation";
import { hasError, isCode, outputsOf } from "./outputs";

const label = () => trans.__("Fix with agent");
const SETTLED_MS = 150;

export class FixButtons {
  readonly #heard = new Map<Notebook, () => void>();
  #disposed = false;

  constructor(
    private readonly tracker: INotebookTracker,
    private readonly fix: (notebook: Notebook, cell: Cell) => Promise<void>,
  ) {
    tracker.widgetAdded.connect(this.#added);
    tracker.forEach((panel) => this.#added(tracker, panel));
  }

  dispose(): void {
    this.#disposed = true;
    this.tracker.widgetAdded.disconnect(this.#added);
    for (const [notebook, changed] of this.#heard) notebook.modelContentChanged.disconnect(changed);
    this.#heard.clear();
  }

  readonly #added = (_: INotebookTracker, panel: NotebookPanel): void => {
    const { content } = panel;
    let settling: ReturnType<typeof setTimeout> | undefined;
    const changed = () => {
      clearTimeout(settling);
      settling = setTimeout(() => this.#show(content), SETTLED_MS);
    };
    this.#heard.set(content, changed);
    content.modelContentChanged.connect(changed);
    panel.disposed.connect(() => this.#heard.delete(content));
    void panel.context.ready.then(changed);
  };

  #show(notebook: Notebook): void {
    if (this.#disposed || notebook.isDisposed) return;
    for (const cell of notebook.widgets) if (isCode(cell)) void cell.ready.then(() => this.#showAt(notebook, cell));
  }

  #showAt(notebook: Notebook, cell: CodeCell): void {
    if (this.#disposed || cell.isDisposed) return;
    const wanted = hasError(outputsOf(cell)) && !isAgentCell(cell.model.sharedModel.getSource());
    const shown = cell.node.querySelector(".ak-fix");
    if (!wanted) shown?.remove();
    else if (!shown) cell.outputArea.node.parentElement?.after(this.#button(notebook, cell));
  }

  #button(notebook: Notebook, cell: Cell): HTMLElement {
    const place = document.createElement("div");
    const button = document.createElement("button");
    place.className = "ak-fix";
    place.dataset["lmSuppressShortcuts"] = "true"; // Lab would take Enter on the button as "edit the cell"
    button.type = "button";
    button.textContent = label();
    button.dataset["lmSuppressShortcuts"] = "true";
    button.addEventListener("click", () => {
      if (button.getAttribute("aria-disabled") === "true") return;
      button.setAttribute("aria-disabled", "true");
      button.textContent = trans.__("The agent looks for a correction...");
      void this.fix(notebook, cell).finally(() => {
        button.removeAttribute("aria-disabled");
        button.textContent = label();
      });
    });
    place.append(button);
    return place;
  }
}
