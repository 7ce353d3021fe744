/** Prompt cells in notebooks with the kernel "Agent prompts (Python)": cells are switched to "Ask" and back, and the
 * prompts of all agent cells are shown as Markdown, with long lines wrapped. */
import type { Cell, CodeCell } from "@jupyterlab/cells";
import { NotebookActions, type INotebookTracker, type NotebookPanel } from "@jupyterlab/notebook";
import { AGENT_PYTHON, METADATA_KEY, isMagicCell, promptOf } from "../notebook/agentCells";
import { isCode } from "./outputs";

const MARKDOWN = "text/x-ipythongfm";
const SETTLED_MS = 150;

/** Whether the kernel of the notebook runs prompt cells as turns. */
export function runsPrompts(panel: NotebookPanel | null): boolean {
  return panel?.sessionContext.session?.kernel?.name === AGENT_PYTHON;
}

export function isPrompt(cell: Cell): boolean {
  return isCode(cell) && promptOf(cell.model.sharedModel.getSource(), cell.model.metadata) !== null;
}

/** Make the cell a prompt if `asks` is true, otherwise make it code again. */
export function switchToAsk(cell: CodeCell, asks: boolean): void {
  const { model } = cell;
  const own = (model.getMetadata(METADATA_KEY) ?? {}) as Record<string, unknown>;
  const rest = Object.fromEntries(Object.entries(own).filter(([name]) => name !== "ask"));
  if (asks) model.setMetadata(METADATA_KEY, { ...rest, ask: true });
  else if (Object.keys(rest).length > 0) model.setMetadata(METADATA_KEY, rest);
  else model.deleteMetadata(METADATA_KEY);
  const quoted = promptOf(model.sharedModel.getSource());
  if (!asks && quoted !== null) model.sharedModel.setSource(quoted);
}

/** Make the cell a prompt and run it. */
export async function askInCell(panel: NotebookPanel, cell: CodeCell): Promise<void> {
  switchToAsk(cell, true);
  await NotebookActions.runCells(panel.content, [cell], panel.sessionContext);
}

export class PromptHighlighter {
  readonly #heard = new Map<NotebookPanel, () => void>();
  #disposed = false;

  constructor(private readonly tracker: INotebookTracker) {
    tracker.widgetAdded.connect(this.#added);
    tracker.forEach((panel) => this.#added(tracker, panel));
  }

  dispose(): void {
    this.#disposed = true;
    this.tracker.widgetAdded.disconnect(this.#added);
    for (const [panel, changed] of this.#heard) {
      panel.content.modelContentChanged.disconnect(changed);
      panel.sessionContext.kernelChanged.disconnect(changed);
    }
    this.#heard.clear();
  }

  readonly #added = (_: INotebookTracker, panel: NotebookPanel): void => {
    let settling: ReturnType<typeof setTimeout> | undefined;
    let typing: ReturnType<typeof setTimeout> | undefined;
    const changed = () => {
      clearTimeout(settling);
      settling = setTimeout(() => this.#show(panel, panel.content.widgets), SETTLED_MS);
      // Update the active cell also while the user types without a pause. The other cells wait for a pause, because
      // reading all cells of a long notebook would delay the keys.
      typing ??= setTimeout(() => {
        typing = undefined;
        this.#show(panel, panel.content.activeCell === null ? [] : [panel.content.activeCell]);
      }, SETTLED_MS);
    };
    this.#heard.set(panel, changed);
    panel.content.modelContentChanged.connect(changed);
    panel.sessionContext.kernelChanged.connect(changed);
    panel.disposed.connect(() => this.#heard.delete(panel));
    void panel.context.ready.then(changed);
  };

  #show(panel: NotebookPanel, cells: readonly Cell[]): void {
    if (this.#disposed || panel.isDisposed) return;
    const prompts = runsPrompts(panel);
    for (const cell of cells) {
      if (!isCode(cell)) continue;
      const asks = (prompts && isPrompt(cell)) || isMagicCell(cell.model.sharedModel.getSource());
      const isShown = cell.model.mimeType === MARKDOWN;
      if (asks !== isShown) cell.model.mimeType = asks ? MARKDOWN : panel.content.codeMimetype;
      if (asks !== cell.hasClass("ak-prompt")) {
        cell.toggleClass("ak-prompt", asks);
        cell.editor?.setOption("lineWrap", asks);
      }
    }
  }
}
