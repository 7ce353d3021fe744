/** The interface of the review of a notebook (`NotebookReviews`) that its cards and its bar use. */
import type { ReadonlySignal } from "@preact/signals";
import type { ChangeKeeper } from "../notebook/notebook";
import type { TurnView } from "../turn/turn";
import type { ReviewItem } from "./items";

export interface Reviewing {
  /** The changes to review, both proposed and made, in the order of the cells at which they are shown. */
  readonly items: ReadonlySignal<readonly ReviewItem[]>;
  /** The items of `items` that were made as inserts or edits and that the user has not accepted yet. */
  readonly open: readonly ReviewItem[];
  /** Key of the item that the notebook was last scrolled to, by the user or because the item was new. */
  readonly current: ReadonlySignal<string>;
  readonly keeper: ChangeKeeper;
  /** The number of cells in this notebook that the turn has changed; undone changes do not count. */
  changedCells(turn: TurnView): number;
  /** Hide a part of the review in this page. `key` is the id of a turn, to hide its bar, or the key of an item, to hide
   * its card. Unlike accepting or undoing a change, this leaves no record in the document. */
  dismiss(key: string): void;
  /** Scroll to the next item, or to the previous one if `step` is negative, and move the focus to its card. If there is
   * no item, the focus moves to the bar. */
  go(step: number): Promise<void>;
  /** Move the focus from the card of the item to the cell at which it is shown. */
  leave(item: ReviewItem): void;
  /** Move the focus into the editor of the cell at which the item is shown. */
  edit(item: ReviewItem): void;
}

/** Read the values of signals, so that the surrounding effect or component runs again when one of them changes. Returns
 * the values. */
export const observe = (...signals: readonly ReadonlySignal<unknown>[]): unknown[] => signals.map((one) => one.value);
