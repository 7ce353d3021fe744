/** The newest page of a session, laid over what is shown. */
import { running } from "../turn/turn";
import type { StoredTurn, StoredTurns } from "../wire/api";
import type { Entry } from "./entry";

/** Where the page begins in what is shown; what stands before it was loaded from earlier pages. */
export const earlier = (shown: readonly Entry[], page: StoredTurns): number =>
  Math.max(
    0,
    shown.findIndex((entry) => entry.id === page.turns[0]?.turn),
  );

/** Entries that are shown keep their identity, those that are gone go, and running ones stay: a turn that waits for its
 * place is not stored yet. `made` gives the entry of a stored turn, from the one that is shown if there is one. */
export function merged(
  shown: readonly Entry[],
  page: StoredTurns,
  made: (turn: StoredTurn, shown: Entry | undefined) => Entry,
): readonly Entry[] {
  const known = new Map(shown.map((entry) => [entry.id, entry]));
  const listed = new Set(page.turns.map((turn) => turn.turn));
  const begun = shown.filter((entry) => !listed.has(entry.id) && running(entry.view.value));
  return [
    ...shown.slice(0, earlier(shown, page)).filter((entry) => !begun.includes(entry)),
    ...page.turns.map((turn) => made(turn, known.get(turn.turn))),
    ...begun,
  ];
}

/** Without the turns that are on another branch than the turn `by`, which stands in the place of `turn`; null where that
 * changes nothing. */
export function replaced(shown: readonly Entry[], turn: string, by: string): readonly Entry[] | null {
  const place = shown.findIndex((entry) => entry.id === turn);
  const until = shown.findIndex((entry) => entry.id === by);
  return place < 0 || until <= place ? null : [...shown.slice(0, place), ...shown.slice(until)];
}
