/** The status bar item: shows that the agent works, or that it needs an answer. A click goes to the question, or shows
 * the panel. */
import type { IStatusBar } from "@jupyterlab/statusbar";
import { Signal } from "@lumino/signaling";
import { Widget } from "@lumino/widgets";
import type { ReadonlySignal } from "@preact/signals";
import type { Conversation } from "../conversation/conversation";
import { hasOpenApproval } from "../turn/turn";
import { trans } from "../translation/translation";

/** The actions of a click on the item: show the panel, go to a question in it, or go to a question in a cell. */
interface Ways {
  panel: () => void;
  /** Go to the approval card in the panel. */
  card: () => void;
  cell: (cell: string) => void;
}

export class Status extends Widget {
  readonly #changed = new Signal<this, void>(this);
  readonly #button = document.createElement("button");
  #active = false;
  #go: () => void;

  constructor(
    bar: IStatusBar,
    private readonly ways: Ways,
  ) {
    super();
    this.#go = ways.panel;
    this.addClass("ak-status-item");
    this.#button.type = "button";
    this.#button.className = "ak-status jp-StatusBar-TextItem";
    this.#button.addEventListener("click", () => this.#go());
    this.node.append(this.#button);
    bar.registerStatusItem("agent-kernel:running", {
      item: this,
      align: "middle",
      isActive: () => this.#active,
      activeStateChanged: this.#changed,
    });
  }

  /** Show the state of a conversation and follow its changes. `asking` is the id of the cell that waits for input;
   * empty for none. Returns a function that stops following. */
  follow({ running, waiting }: Conversation, asking: ReadonlySignal<string>): () => void {
    const told = () => this.#tell(running.value.length, waiting.value, asking.value);
    const ends = [running.subscribe(told), waiting.subscribe(told), asking.subscribe(told)];
    return () => {
      for (const end of ends) end();
    };
  }

  #tell(running: number, waiting: Conversation["waiting"]["value"], cell: string): void {
    const asks = waiting.length > 0 || cell !== "";
    const inPanel = waiting.some(({ view }) => hasOpenApproval(view.value));
    this.#active = running > 0 || asks;
    const works = running > 1 ? trans._n("Agent: %1 turn", "Agent: %1 turns", running) : trans.__("Agent: working");
    this.#button.textContent = asks ? trans.__("Agent: needs your answer") : works;
    this.#button.title = asks ? trans.__("Go to the question") : trans.__("Show the agent's panel");
    const cellOfTurn = cell || (waiting[0]?.cell ?? "");
    if (asks && !inPanel && cellOfTurn) this.#go = () => this.ways.cell(cellOfTurn);
    else this.#go = asks ? this.ways.card : this.ways.panel;
    this.#changed.emit();
  }
}
