/** The button below the output of each cell that failed: "Fix with agent", or "Ask the agent" where the kernel says that
 * the cell is a sentence. */
import type { INotebookTracker, Notebook, NotebookPanel } from "@jupyterlab/notebook";
import type { Cell, CodeCell } from "@jupyterlab/cells";
import { isAgentCell, offersToAsk } from "../notebook/agentCells";
import { trans } from "../translation/translation";
import { hasError, isCode, outputsOf } from "./outputs";

interface Kind {
  readonly name: "fix" | "ask";
  readonly label: string;
  readonly working: string;
}

// These are functions, because the language of the page is not set yet while the module is loaded.
const fixKind = (): Kind => ({
  name: "fix",
  label: trans.__("Fix with agent"),
  working: trans.__("The agent looks for a correction..."),
});
const askKind = (): Kind => ({ name: "ask", label: trans.__("Ask the agent"), working: trans.__("Ask the agent") });
const SETTLED_MS = 150;

export class FixButtons {
  readonly #heard = new Map<Notebook, () => void>();
  #disposed = false;

  constructor(
    private readonly tracker: INotebookTracker,
    private readonly fix: (notebook: Notebook, cell: Cell) => Promise<void>,
    private readonly ask: (panel: NotebookPanel, cell: CodeCell) => Promise<void>,
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
      settling = setTimeout(() => this.#show(panel), SETTLED_MS);
    };
    this.#heard.set(content, changed);
    content.modelContentChanged.connect(changed);
    panel.disposed.connect(() => this.#heard.delete(content));
    void panel.context.ready.then(changed);
  };

  #show(panel: NotebookPanel): void {
    if (this.#disposed || panel.isDisposed) return;
    for (const cell of panel.content.widgets) if (isCode(cell)) void cell.ready.then(() => this.#showAt(panel, cell));
  }

  #showAt(panel: NotebookPanel, cell: CodeCell): void {
    if (this.#disposed || cell.isDisposed) return;
    const { sharedModel, metadata } = cell.model;
    const outputs = outputsOf(cell);
    const wanted = hasError(outputs) && !isAgentCell(sharedModel.getSource(), metadata);
    const kind = outputs.some((output) => offersToAsk(output["metadata"])) ? askKind() : fixKind();
    const shown = cell.node.querySelector<HTMLElement>(".ak-fix");
    if (wanted && shown?.dataset["kind"] === kind.name) return;
    shown?.remove();
    if (wanted) cell.outputArea.node.parentElement?.after(this.#button(panel, cell, kind));
  }

  #button(panel: NotebookPanel, cell: CodeCell, { name, label, working }: Kind): HTMLElement {
    const place = document.createElement("div");
    const button = document.createElement("button");
    place.className = "ak-fix";
    place.dataset["kind"] = name;
    place.dataset["lmSuppressShortcuts"] = "true"; // Lab would take Enter on the button as "edit the cell"
    button.type = "button";
    button.textContent = label;
    button.dataset["lmSuppressShortcuts"] = "true";
    button.addEventListener("click", () => {
      if (button.getAttribute("aria-disabled") === "true") return;
      button.setAttribute("aria-disabled", "true");
      button.textContent = working;
      const doing = name === "ask" ? this.ask(panel, cell) : this.fix(panel.content, cell);
      void doing.finally(() => {
        button.removeAttribute("aria-disabled");
        button.textContent = label;
      });
    });
    place.append(button);
    return place;
  }
}
