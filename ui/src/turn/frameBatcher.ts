/** Updates the views of growing turns once per animation frame, however many events arrive. The browser runs no frames
 * for a hidden page; meanwhile the latest view of each turn is kept, not its events. */
import { batch, type Signal } from "@preact/signals";
import { applyEvent, type TurnView } from "./turn";
import type { TurnEvent } from "../wire/events";

export class Frames {
  readonly #next = new Map<Signal<TurnView>, TurnView>();
  #frame = 0;

  add(view: Signal<TurnView>, event: TurnEvent): void {
    this.#next.set(view, applyEvent(this.#next.get(view) ?? view.peek(), event));
    if (this.#frame === 0) this.#frame = requestAnimationFrame(this.#show);
  }

  /** Stop, and drop the views that have not been shown yet. */
  close(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#next.clear();
  }

  readonly #show = (): void => {
    this.#frame = 0;
    const all = [...this.#next];
    this.#next.clear();
    batch(() => {
      for (const [view, turn] of all) view.value = turn;
    });
  };
}
