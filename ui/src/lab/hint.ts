/** One line for a person who opens a notebook with the agent for the first time: how to ask. */
import { Notification } from "@jupyterlab/apputils";
import type { INotebookTracker } from "@jupyterlab/notebook";
import { trans } from "../translation/translation";

/** Long enough to be read twice. Afterwards JupyterLab keeps the line in its list of notifications. */
const SHOWN_MS = 20_000;

export class FirstHint {
  #disposed = false;
  #notification = "";

  /** `claim` says whether the hint is due, and is true once. */
  constructor(
    private readonly tracker: INotebookTracker,
    private readonly claim: () => Promise<boolean>,
    private readonly panel: { isVisible: boolean; reveal: () => Promise<void> },
  ) {
    tracker.currentChanged.connect(this.#look);
    this.#look();
  }

  dispose(): void {
    this.#disposed = true;
    this.tracker.currentChanged.disconnect(this.#look);
  }

  /** Take the hint away: the panel was opened, and the hint would cover its message. */
  withdraw(): void {
    if (this.#notification) Notification.dismiss(this.#notification);
    this.#notification = "";
  }

  readonly #look = (): void => {
    void this.#show().catch((error: unknown) => {
      console.warn("agent-kernel: the hint for the first notebook could not be shown.", error);
    });
  };

  /** The line names a cell magic of Python, so it comes with the first notebook whose kernel is one of Python. A person
   * who has the panel open has found the agent. */
  async #show(): Promise<void> {
    const context = this.tracker.currentWidget?.sessionContext;
    await context?.ready;
    const info = await context?.session?.kernel?.info;
    if (this.#disposed || info?.language_info.name !== "python") return;
    this.dispose();
    if (this.panel.isVisible || !(await this.claim())) return;
    // JupyterLab's translation rewrites "%%", so the magic is put in afterwards.
    const line = trans.__("Ask the agent: begin a cell with %1, or click Agent in the toolbar.", "%1");
    this.#notification = Notification.emit(line.replace("%1", "%%agent"), "default", {
      autoClose: SHOWN_MS,
      actions: [
        { label: trans.__("Show the agent's panel"), callback: () => void this.panel.reveal(), displayType: "link" },
      ],
    });
  }
}
