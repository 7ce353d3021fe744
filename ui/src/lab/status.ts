/** Says in the status bar that the agent works, as long as it does; a click shows the panel. */
import type { IStatusBar } from "@jupyterlab/statusbar";
import { Signal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";
import type { Conversation } from "../conversation/conversation";

export class Status extends Widget {
  readonly #changed = new Signal<this, void>(this);
  readonly #button = document.createElement("button");
  #running = 0;

  constructor(bar: IStatusBar, show: () => void) {
    super();
    this.addClass("ak-status-item");
    this.#button.type = "button";
    this.#button.className = "ak-status jp-StatusBar-TextItem";
    this.#button.title = "Show the agent's panel";
    this.#button.addEventListener("click", show);
    this.node.append(this.#button);
    bar.registerStatusItem("agent-kernel:running", {
      item: this,
      align: "middle",
      isActive: () => this.#running > 0,
      activeStateChanged: this.#changed,
    });
  }

  /** Returns what ends it. */
  follow(conversation: Conversation): () => void {
    return conversation.running.subscribe((running) => {
      this.#running = running.length;
      this.#button.textContent = running.length > 1 ? `Agent: ${running.length} turns` : "Agent: working";
      this.#changed.emit();
    });
  }
}
