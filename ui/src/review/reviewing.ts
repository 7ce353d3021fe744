/** What cards and the bar use of the review of a notebook. */
import type { ReadonlySignal } from "@preact/signals";
import type { ChangeKeeper } from "../notebook/notebook";
import type { TurnView } from "../turn/turn";
import type { ReviewItem } from "./items";

export interface Reviewing {
  /** The changes to review, in the order of the cells. */
  readonly items: ReadonlySignal<readonly ReviewItem[]>;
  /** Changes that were made and wait to be accepted. */
  readonly open: readonly ReviewItem[];
  /** Key of the item that the user went to last. */
  readonly current: ReadonlySignal<string>;
  readonly keeper: ChangeKeeper;
  /** The number of cells that the turn has changed. */
  changedCells(turn: TurnView): number;
  /** Hide the review bar of the turn with the id `key`, or the review of the change with this key. The document does not
   * record it, unlike an accepted or undone change. */
  dismiss(key: string): void;
  /** Go to the next item, or to the one before with a negative step, and move the focus there; to the bar if there is
   * no item. */
  go(step: number): Promise<void>;
  /** Move the focus from a card to its cell. */
  leave(item: ReviewItem): void;
  /** Move the focus into the editor of the cell that a change was made in. */
  edit(item: ReviewItem): void;
}

/** Run the surrounding effect or component again when one of the signals changes. Returns their values. */
export const observe = (...signals: readonly ReadonlySignal<unknown>[]): unknown[] => signals.map((one) => one.value);
