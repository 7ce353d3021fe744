/** One line for a person who opens a notebook with the agent for the first time: how to ask. */
import { Notification } from "@jupyterlab/apputils";
import type { INotebookTracker } from "@jupyterlab/notebook";
import { trans } from "../translation/translation";

/** Long enough to be read twice. Afterwards JupyterLab keeps the line in its list of notifications. */
const SHOWN_MS = 20_000;

export class FirstHint {
  #disposed = false;
  #notification = "";

  /** `claim` resolves with whether the hint is due. It resolves with true only once for a user. */
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

  /** Remove the hint. Call this when the panel is opened, because the hint would cover the message field. */
  withdraw(): void {
    if (this.#notification) Notification.dismiss(this.#notification);
    this.#notification = "";
  }

  readonly #look = (): void => {
    void this.#show().catch((error: unknown) => {
      console.warn("agent-kernel: the hint for the first notebook could not be shown.", error);
    });
  };

  /** Show the hint with the first notebook whose kernel is a Python kernel, because it names a cell magic of IPython. A
   * user who has the panel open does not need it. */
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
