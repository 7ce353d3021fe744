/** The bar below the notebook: how many cells a turn changed, how many of the changes wait for the user, and buttons to
 * go from one change to the next, to accept or reject all, and to undo the changes of the turn. */
import { useSignal } from "@preact/signals";
import { usePanel } from "../conversation/panelContext";
import { canUndo, undoTurn } from "../notebook/undo";
import type { TurnView } from "../turn/turn";
import { Icon } from "../markdown/Icon";
import { observe, type Reviewing } from "./reviewing";
import { trans } from "../translation/translation";

export function ReviewBar({ reviews, turn }: { reviews: Reviewing; turn: TurnView }) {
  const { host } = usePanel();
  const said = useSignal<{ turn: string; text: string } | null>(null);
  observe(reviews.keeper.version);
  const items = reviews.items.value;
  const open = reviews.open;
  const changes = open.flatMap(({ change }) => change ?? []);
  const here = items.findIndex((item) => item.key === reviews.current.value);
  const isUndoable = turn.state !== "open" && canUndo(host.notebook, turn);
  const undo = () => (said.value = { turn: turn.id, text: undoTurn(host.notebook, turn).join(" ") });
  const rejectAll = () => {
    const kept = reviews.keeper.undo(changes).filter(({ done }) => !done);
    said.value = {
      turn: turn.id,
      text: kept.map(({ why }) => trans.__("One change was not undone: %1.", why)).join(" "),
    };
  };
  const told = said.value?.turn === turn.id ? said.value.text : "";
  return (
    <div class="ak-review-bar" role="region" aria-label={trans.__("Changes by the agent")}>
      <p class="ak-review-count" role="status">
        {told || count(reviews.changedCells(turn), items.length, here)}
      </p>
      {items.length > 0 && (
        <>
          <button
            type="button"
            aria-label={trans.__("Previous change")}
            title={trans.__("Previous change")}
            onClick={() => void reviews.go(-1)}
          >
            <Icon name="left" />
          </button>
          <button
            type="button"
            aria-label={trans.__("Next change")}
            title={trans.__("Next change")}
            onClick={() => void reviews.go(1)}
          >
            <Icon name="right" />
          </button>
        </>
      )}
      {changes.length > 1 && (
        <>
          <button type="button" class="ak-primary" onClick={() => reviews.keeper.accept(changes)}>
            {trans.__("Accept all")}
          </button>
          <button type="button" onClick={rejectAll}>
            {trans.__("Reject all")}
          </button>
        </>
      )}
      {isUndoable && (
        <button type="button" title={trans.__("Undo all changes of cells that the last turn made")} onClick={undo}>
          {trans.__("Undo changes")}
        </button>
      )}
      {items.length === 0 && (
        <button
          type="button"
          aria-label={trans.__("Close")}
          title={trans.__("Close")}
          onClick={() => reviews.dismiss(turn.id)}
        >
          ×
        </button>
      )}
    </div>
  );
}

function count(cells: number, open: number, here: number): string {
  const changed = cells > 0 ? trans._n("%1 cell changed", "%1 cells changed", cells) : "";
  const place = open > 1 && here >= 0 ? ` (${trans.__("%1 of %2", here + 1, open)})` : "";
  const left = open > 0 ? trans._n("%1 change to review", "%1 changes to review", open) + place : "";
  return [changed, left].filter(Boolean).join(" · ") || trans.__("No changes are left");
}
