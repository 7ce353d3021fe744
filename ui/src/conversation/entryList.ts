/** Merges the newest page of a session's turns, as the server sends it, into the entries that the panel shows. */
import { isRunning, applyEvent, emptyTurn, keepUnsaved, type TurnView } from "../turn/turn";
import type { StoredTurn, StoredTurns } from "../wire/bodyTypes";
import type { Entry } from "./entry";

/** Index in `shown` of the first turn of the page; 0 if this turn is not shown. Entries before this index belong to
 * earlier pages. */
export const pageStart = (shown: readonly Entry[], page: StoredTurns): number =>
  Math.max(
    0,
    shown.findIndex((entry) => entry.id === page.turns[0]?.turn),
  );

/** Return the entries to show after the server has sent `page`, the newest turns of a session. Entries of earlier pages
 * stay. The turns of the page replace the other entries, except for a running turn that is not on the page: it stays if
 * its id is not in `asked`, the ids of the turns that were shown when the page was requested, because the user sent it
 * after the request. `made` returns the entry for a turn of the page; its argument `shown` is the entry that the panel
 * shows for this turn, and `made` may return it so that it is not drawn again. */
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

/** The messages that wait until the turns before them end. `running` has the turns that have not ended, in their order.
 * The first of them does not wait for another one; a turn that has begun has a model. */
export const queuedEntries = (running: readonly Entry[]): readonly Entry[] =>
  running.slice(1).filter((entry) => !entry.view.value.model);

/** The entries of `before` that were waiting in the queue and are missing in `now`: the server no longer has them. */
export const lostMessages = (before: readonly Entry[], now: readonly Entry[]): readonly Entry[] =>
  before.filter(
    (entry) => !now.some(({ id }) => id === entry.id) && isRunning(entry.view.value) && !entry.view.value.model,
  );

/** Remove the turn `turn` and all entries between it and the turn `by`, which replaces it on a new branch. Returns null
 * if one of the two turns is not shown or `by` is not after `turn`. */
export function removeReplaced(shown: readonly Entry[], turn: string, by: string): readonly Entry[] | null {
  const place = shown.findIndex((entry) => entry.id === turn);
  const until = shown.findIndex((entry) => entry.id === by);
  return place < 0 || until <= place ? null : [...shown.slice(0, place), ...shown.slice(until)];
}

/** Keeps the text that this page has received of unfinished turns. If the server is killed during a turn, the store has
 * only the completed steps of the turn, not the text that was arriving. */
export class UnsavedText {
  readonly #views = new Map<string, TurnView>();

  /** Keep the views of entries that are still running, or whose last text is not in the store. */
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
