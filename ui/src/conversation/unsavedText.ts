/** The text that was arriving when a server was killed. The store has only the completed steps of such a turn. */
import { applyEvent, emptyTurn, isRunning, keepUnsaved, type TurnView } from "../turn/turn";
import type { StoredTurn } from "../wire/bodyTypes";
import type { Entry } from "./entry";

export class UnsavedText {
  readonly #views = new Map<string, TurnView>();

  /** Keep what is shown of turns whose end is not known. */
  remember(entries: readonly Entry[]): void {
    for (const { id, view } of entries) {
      if (isRunning(view.value) || view.value.unsaved) this.#views.set(id, view.value);
    }
  }

  /** What is shown of a stored turn, with the text that the store does not have. */
  view(turn: StoredTurn): TurnView {
    const stored = turn.events.reduce(applyEvent, emptyTurn(turn.turn, turn.session));
    const view = { ...stored, began: turn.created, ended: turn.closed ?? 0 };
    const shown = this.#views.get(turn.turn);
    return shown ? keepUnsaved(view, shown) : view;
  }
}
