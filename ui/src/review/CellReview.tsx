/** A card at a cell that shows what would change or has changed in it, with buttons to accept, reject or edit the
 * change. */
import { useSignal } from "@preact/signals";
import { useId, useRef } from "preact/hooks";
import { usePanel } from "../conversation/panelContext";
import { undoChange } from "../notebook/undo";
import type { Change } from "../turn/cellChanges";
import { cellName } from "../turn/cellName";
import { hasInvisible } from "../turn/invisibleCharacters";
import { proposalTitle } from "../view/proposalTitle";
import { Diff } from "../view/Review";
import { Outdated, ProposeAgain, useObstacle } from "../view/OutdatedChange";
import { TextEdit } from "../view/TextEdit";
import { editableText, useDecision } from "../view/useDecision";
import type { ReviewItem } from "./items";
import type { Reviewing } from "./reviewing";
import { Problem } from "../view/Problem";
import { trans } from "../translation/translation";

interface Reviewed {
  item: ReviewItem;
  reviews: Reviewing;
}

export function CellReview({ item, reviews }: Reviewed) {
  const title = useId();
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    event.preventDefault();
    reviews.leave(item);
  };
  return (
    <div
      class="ak-cell-review"
      role="group"
      aria-labelledby={title}
      aria-current={reviews.current.value === item.key}
      tabIndex={-1}
      onKeyDown={onKeyDown}
    >
      <p class="ak-cell-review-title" id={title}>
        <Title item={item} />
      </p>
      <Decision item={item} reviews={reviews} />
    </div>
  );
}

function Decision({ item, reviews }: Reviewed) {
  if (item.approval) return <Proposed item={item} />;
  return item.correction ? (
    <Correction item={item} correction={item.correction} reviews={reviews} />
  ) : (
    <Made item={item} reviews={reviews} />
  );
}

/** The correction of a failed cell. The cell changes when the user accepts it, here or in the panel. */
function Correction({ item, correction, reviews: { keeper } }: Reviewed & { correction: Change }) {
  const { conversation } = usePanel();
  const said = useSignal("");
  const reject = () => conversation.corrections.reject(correction, cellName(keeper.place(correction)));
  return (
    <>
      <p class="ak-quiet">{trans.__("This correction ran in a draft without the error.")}</p>
      <Changed item={item} />
      <div class="ak-choices">
        <button type="button" class="ak-primary" onClick={() => (said.value = keeper.apply(correction))}>
          {trans.__("Accept")}
        </button>
        <button type="button" onClick={reject}>
          {trans.__("Reject")}
        </button>
      </div>
      <Problem text={said.value} role="status" />
    </>
  );
}

function Proposed({ item }: { item: ReviewItem }) {
  const { decide, sending, problem } = useDecision(item.approval);
  const editing = useSignal(false);
  const edit = useRef<HTMLButtonElement>(null);
  const proposed = item.approval ? editableText(item.approval) : null;
  const obstacle = useObstacle(item);
  const approve = (text?: string) => {
    const edited = text === undefined || text === proposed ? {} : { edited: text };
    void decide({ decision: "approve", remember: "once", ...edited });
  };
  const cancel = () => {
    editing.value = false;
    requestAnimationFrame(() => edit.current?.focus());
  };
  return (
    <>
      {editing.value && proposed !== null ? (
        <TextEdit
          text={proposed}
          label={trans.__("The text that the cell gets")}
          action={trans.__("Accept")}
          onAccept={approve}
          onCancel={cancel}
        />
      ) : (
        <>
          <Changed item={item} />
          {obstacle && <Outdated obstacle={obstacle} />}
          <div class="ak-choices">
            {obstacle ? (
              <ProposeAgain obstacle={obstacle} disabled={sending.value} onDeny={(choice) => void decide(choice)} />
            ) : (
              <button type="button" class="ak-primary" aria-disabled={sending.value} onClick={() => approve()}>
                {trans.__("Accept")}
              </button>
            )}
            <button
              type="button"
              aria-disabled={sending.value}
              onClick={() => void decide({ decision: "deny", remember: "once" })}
            >
              {trans.__("Reject")}
            </button>
            {proposed !== null && !obstacle && (
              <button type="button" ref={edit} aria-disabled={sending.value} onClick={() => (editing.value = true)}>
                {trans.__("Edit")}
              </button>
            )}
          </div>
        </>
      )}
      <Problem text={problem.value} />
    </>
  );
}

/** A change that the agent made without asking. The document has no mark for a deleted or moved cell, so "Accept" only
 * hides the card of such a change in this page. */
function Made({ item, reviews }: Reviewed) {
  const said = useSignal("");
  const { change } = item;
  const hasText = item.do === "insert" || item.do === "edit";
  const reject = () => (said.value = change ? undoChange(reviews.keeper, change) : "");
  const accept = () => {
    if (change && hasText) reviews.keeper.accept([change]);
    else reviews.dismiss(item.key);
  };
  return (
    <>
      <Changed item={item} />
      <div class="ak-choices">
        <button type="button" class="ak-primary" onClick={accept}>
          {trans.__("Accept")}
        </button>
        <button type="button" onClick={reject}>
          {trans.__("Reject")}
        </button>
        {hasText && (
          <button type="button" onClick={() => reviews.edit(item)}>
            {trans.__("Edit")}
          </button>
        )}
      </div>
      <Problem text={said.value} role="status" />
    </>
  );
}

/** The difference that a change makes. It is left out if the cell itself shows the text (a cell that was added or would
 * be deleted), unless the text has invisible characters, and for a moved cell. */
function Changed({ item }: { item: ReviewItem }) {
  const { before, after } = item;
  const isShown =
    item.do === "move" || (item.do === "insert" && item.change) || (item.do === "delete" && item.approval);
  const hidden = hasInvisible(item.do === "delete" ? before : after);
  return (
    <>
      {(!isShown || hidden) && (
        <Diff before={before} after={after} label={trans.__("The change, line by line")} most={Infinity} />
      )}
      {hidden && (
        <p class="ak-problem">{trans.__("It contains invisible characters. They are shown as their code points.")}</p>
      )}
    </>
  );
}

const made = () => ({
  insert: trans.__("Added by the agent"),
  edit: trans.__("Changed by the agent"),
  delete: trans.__("Deleted by the agent"),
  move: trans.__("Moved by the agent"),
});

function Title({ item }: { item: ReviewItem }) {
  const { host } = usePanel();
  if (item.change) return <>{made()[item.do]}</>;
  return <>{proposalTitle(item, host.notebook?.places?.cells() ?? [], true)}</>;
}
