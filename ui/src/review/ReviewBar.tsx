/** The bar below the notebook: how many cells a turn changed, how many wait for the user, and buttons to go from one to
 * the other, to accept or reject all, and to undo the turn. */
import { useSignal } from "@preact/signals";
import { usePanel } from "../conversation/panelContext";
import { canUndo, undoTurn } from "../notebook/undo";
import { pluralize } from "../turn/labels";
import type { TurnView } from "../turn/turn";
import { Icon } from "../view/Icon";
import { observe } from "./observe";
import type { Reviewing } from "./reviewing";

export function ReviewBar({ reviews, turn }: { reviews: Reviewing; turn: TurnView }) {
  const { host } = usePanel();
  const said = useSignal<{ turn: string; text: string } | null>(null);
  observe(reviews.keeper.version);
  const items = reviews.items.value;
  const open = reviews.open;
  const changes = open.flatMap(({ change }) => change ?? []);
  const here = items.findIndex((item) => item.key === reviews.current.value);
  const isUndoable = turn.state !== "open" && canUndo(host.notebook, turn);
  const undo = () => (said.value = { turn: turn.id, text: undoTurn(host.notebook, turn).words.join(" ") });
  const rejectAll = () => {
    const kept = reviews.keeper.undo(changes).filter(({ done }) => !done);
    said.value = { turn: turn.id, text: kept.map(({ why }) => `One change was not undone: ${why}.`).join(" ") };
  };
  const told = said.value?.turn === turn.id ? said.value.text : "";
  return (
    <div class="ak-review-bar" role="region" aria-label="Changes by the agent">
      <p class="ak-review-count" role="status">
        {told || count(reviews.changedCells(turn), items.length, here)}
      </p>
      {items.length > 0 && (
        <>
          <button
            type="button"
            aria-label="Previous change"
            title="Previous change"
            onClick={() => void reviews.go(-1)}
          >
            <Icon name="left" />
          </button>
          <button type="button" aria-label="Next change" title="Next change" onClick={() => void reviews.go(1)}>
            <Icon name="right" />
          </button>
        </>
      )}
      {changes.length > 1 && (
        <>
          <button type="button" class="ak-primary" onClick={() => reviews.keeper.accept(changes)}>
            Accept all
          </button>
          <button type="button" onClick={rejectAll}>
            Reject all
          </button>
        </>
      )}
      {isUndoable && (
        <button type="button" title="Undo all changes of cells that the last turn made" onClick={undo}>
          Undo turn
        </button>
      )}
      {items.length === 0 && (
        <button type="button" aria-label="Close" title="Close" onClick={() => reviews.dismiss(turn.id)}>
          ×
        </button>
      )}
    </div>
  );
}

function count(cells: number, open: number, here: number): string {
  const changed = cells > 0 ? `${pluralize(cells, "cell")} changed` : "";
  const place = open > 1 && here >= 0 ? ` (${here + 1} of ${open})` : "";
  const left = open > 0 ? `${pluralize(open, "change")} to review${place}` : "";
  return [changed, left].filter(Boolean).join(" · ") || "No changes are left";
}
