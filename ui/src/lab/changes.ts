/** Status and undo of the agent's changes in the notebooks that are open in this page. A change belongs to the open
 * notebook with the path that the change names, or, if none has this path, to the only open notebook that has its
 * cell. */
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import type { Signal } from "@preact/signals";
import type { ISharedNotebook } from "@jupyter/ydoc";
import type { Change, ProposedChange } from "../turn/cellChanges";
import type { ChangeKeeper, Obstacle, Outcome, Standing } from "../notebook/notebook";
import { closedReason } from "../notebook/undo";
import { accept, edit, EditRefused, obstacle, place, standing, undo } from "./edits";

const TELL_AFTER_MS = 250;

/** Increase `version` when an open notebook has changed; several changes within `delay` milliseconds increase it once.
 * Returns a function to call after a change that the notebooks do not report. */
export function countChanges(tracker: INotebookTracker, version: Signal<number>, delay: number): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const changed = (): void => {
    timer ??= setTimeout(() => {
      timer = undefined;
      version.value++;
    }, delay);
  };
  const added = (_: unknown, panel: NotebookPanel) => {
    panel.content.modelContentChanged.connect(changed);
    panel.disposed.connect(changed);
    void panel.context.ready.then(changed);
  };
  tracker.widgetAdded.connect(added);
  tracker.forEach((panel) => added(tracker, panel));
  return changed;
}

export class LabChanges implements ChangeKeeper {
  readonly version: Signal<number>;
  readonly #changed: () => void;

  constructor(
    private readonly tracker: INotebookTracker,
    signal: <Value>(value: Value) => Signal<Value>,
  ) {
    this.version = signal(0);
    this.#changed = countChanges(tracker, this.version, TELL_AFTER_MS);
  }

  standing(change: Change): Standing {
    const notebook = this.#notebookOf([change]);
    return notebook ? standing(notebook, change) : "closed";
  }

  obstacle(change: ProposedChange, path: string): Obstacle {
    const notebook = this.#notebookOf([{ notebook: path, cell: change.cell || change.below }]);
    return notebook ? obstacle(notebook, change) : "";
  }

  place(change: Change): number {
    const notebook = this.#notebookOf([change]);
    return notebook ? place(notebook, change) : -1;
  }

  undo(changes: readonly Change[]): Outcome[] {
    const notebook = this.#notebookOf(changes);
    if (!notebook) return changes.map((change) => ({ change, done: false, why: closedReason() }));
    return undo(notebook, changes);
  }

  accept(changes: readonly Change[]): void {
    const notebook = this.#notebookOf(changes);
    if (notebook) accept(notebook, changes);
    this.#changed();
  }

  apply(change: Change): string {
    const notebook = this.#notebookOf([change]);
    if (!notebook) return closedReason();
    const { cell, before, after, turn, call } = change;
    try {
      edit(notebook, { cell, before, after }, { turn, call, accepted: true });
    } catch (error) {
      if (error instanceof EditRefused) return error.reason;
      throw error;
    }
    this.#changed();
    return "";
  }

  #notebookOf(changes: readonly Pick<Change, "notebook" | "cell">[]): ISharedNotebook | null {
    const open: { path: string; notebook: ISharedNotebook }[] = [];
    this.tracker.forEach((panel) => {
      const notebook = panel.content.model?.sharedModel;
      if (notebook && panel.context.isReady) open.push({ path: panel.context.localPath, notebook });
    });
    const named = open.find(({ path }) => path === changes[0]?.notebook);
    if (named) return named.notebook;
    const cells = new Set(changes.map((change) => change.cell));
    const having = open.filter(({ notebook }) => notebook.cells.some((cell) => cells.has(cell.id)));
    return having.length === 1 ? (having[0]?.notebook ?? null) : null;
  }
}
