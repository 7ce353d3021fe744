/** The newest page of a session, laid over what is shown. */
import { isRunning } from "../turn/turn";
import type { StoredTurn, StoredTurns } from "../wire/api";
import type { Entry } from "./entry";

/** Where the page begins in what is shown; what stands before it was loaded from earlier pages. */
export const pageStart = (shown: readonly Entry[], page: StoredTurns): number =>
  Math.max(
    0,
    shown.findIndex((entry) => entry.id === page.turns[0]?.turn),
  );

/** Entries that are shown keep their identity, and those that are gone go. A running turn that is not on the page is
 * kept unless it is one of `asked`, those that were shown when the page was asked for: it was sent since. `made` gives
 * the entry of a turn of the page, from the one that is shown if there is one. */
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

/** Messages that were shown as waiting for their place, and are not on the page any more. */
export const lostMessages = (before: readonly Entry[], now: readonly Entry[]): readonly Entry[] =>
  before.filter(
    (entry) => !now.some(({ id }) => id === entry.id) && isRunning(entry.view.value) && !entry.view.value.model,
  );

/** Without the turns that are on another branch than the turn `by`, which stands in the place of `turn`; null where that
 * changes nothing. */
export function removeReplaced(shown: readonly Entry[], turn: string, by: string): readonly Entry[] | null {
  const place = shown.findIndex((entry) => entry.id === turn);
  const until = shown.findIndex((entry) => entry.id === by);
  return place < 0 || until <= place ? null : [...shown.slice(0, place), ...shown.slice(until)];
}
