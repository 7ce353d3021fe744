/** The side bar's widget. The panel itself is fetched when Lab has started: its start does not wait for it. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { INotebookTracker } from "@jupyterlab/notebook";
import { Widget } from "@lumino/widgets";
import type { Mounted } from "../panel";
import { base } from "./container";
import { LabNotebook } from "./notebook";

declare const PANEL_FILE: string;
declare const STYLE_FILE: string;

export class Side extends Widget {
  #mounted: Promise<Mounted> | null = null;

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly tracker: INotebookTracker,
  ) {
    super();
    this.id = "agent-kernel-panel";
    this.title.caption = "Agent";
    this.title.label = "Agent";
    this.addClass("agent-kernel-side");
  }

  focus(): void {
    void this.#mounted?.then(() => this.node.querySelector("textarea")?.focus());
  }

  /** Also when nobody looks yet: the notebook's turns are served by an open page, not by an open side bar. */
  start(): void {
    this.#mounted ??= this.#mount();
  }

  override dispose(): void {
    void this.#mounted?.then((mounted) => mounted.unmount());
    super.dispose();
  }

  async #mount(): Promise<Mounted> {
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.href = new URL(STYLE_FILE, base).href;
    document.head.append(style);
    const url = new URL(PANEL_FILE, base).href;
    const { mount, ServerTransport, signal } = (await import(url)) as typeof import("../panel");
    const { baseUrl, wsUrl, token, appendToken } = this.app.serviceManager.serverSettings;
    const transport = new ServerTransport({ baseUrl, wsUrl, ...(appendToken ? { token } : {}) });
    return mount(this.node, { transport, notebook: new LabNotebook(this.app, this.tracker, signal) });
  }
}
