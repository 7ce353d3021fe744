/** Merges the newest page of a session into the entries that are shown. */
import { isRunning, applyEvent, emptyTurn, keepUnsaved, type TurnView } from "../turn/turn";
import type { StoredTurn, StoredTurns } from "../wire/bodyTypes";
import type { Entry } from "./entry";

/** Index at which the page starts among the entries that are shown. Entries before it are of earlier pages. */
export const pageStart = (shown: readonly Entry[], page: StoredTurns): number =>
  Math.max(
    0,
    shown.findIndex((entry) => entry.id === page.turns[0]?.turn),
  );

/** Return the entries to show after the server has sent `page`, the newest turns of a session. `shown` are the entries
 * that are shown now; those that the page should have and does not have are removed. `asked` has the ids of the turns
 * that were shown when the page was requested: a running turn that is not on the page stays if it is not among them,
 * because it was sent later. `made` returns the entry for a turn of the page; it receives the entry that is shown for the
 * turn, if there is one, so that this entry keeps its identity. */
export function mergePage(
  shown: readonly Entry[],
  page: StoredTurns,
  asked: ReadonlySet<string>,
  made: (turn: StoredTurn, shown: Entry | undefined) => Entry,
): readonly Entry[] {
  const known = new Map(shown.map((entry) => [entry.id, entry]));
  const paged = [...page.turns, ...page.waiting];
  const listed = new Set(paged.map((turn) => turn.turn));
  const sent = shown.filter((entry) => !listed.has(entry.id) && isRunning(entry.view.value));
  return [
    ...shown.slice(0, pageStart(shown, page)).filter((entry) => !sent.includes(entry)),
    ...paged.map((turn) => made(turn, known.get(turn.turn))),
    ...sent.filter((entry) => !asked.has(entry.id)),
  ];
}

/** Messages that were shown as queued and are not on the page any more. */
export const lostMessages = (before: readonly Entry[], now: readonly Entry[]): readonly Entry[] =>
  before.filter(
    (entry) => !now.some(({ id }) => id === entry.id) && isRunning(entry.view.value) && !entry.view.value.model,
  );

/** Remove the turns that are not on the branch of the turn `by`, which replaces `turn`. Null if nothing changes. */
export function removeReplaced(shown: readonly Entry[], turn: string, by: string): readonly Entry[] | null {
  const place = shown.findIndex((entry) => entry.id === turn);
  const until = shown.findIndex((entry) => entry.id === by);
  return place < 0 || until <= place ? null : [...shown.slice(0, place), ...shown.slice(until)];
}

/** The text that was arriving when a server was killed. The store has only the completed steps of such a turn. */
export class UnsavedText {
  readonly #views = new Map<string, TurnView>();

  /** Keep what is shown of turns whose end is not known. */
  remember(entries: readonly Entry[]): void {
    for (const { id, view } of entries) {
      if (isRunning(view.value) || view.value.unsaved) this.#views.set(id, view.value);
    }
  }

  /** The view of a stored turn. If the server was killed during the turn, the view ends with the text that had arrived in
   * this page and that the store does not have. */
  view(turn: StoredTurn): TurnView {
    const stored = turn.events.reduce(applyEvent, emptyTurn(turn.turn, turn.session));
    const view = { ...stored, began: turn.created, ended: turn.closed ?? 0 };
    const shown = this.#views.get(turn.turn);
    return shown ? keepUnsaved(view, shown) : view;
  }
}
