/** The review of cell changes: a diff of each one, with buttons to accept or undo it, or all changes of a turn. The
 * status comes from the host and is computed again whenever the notebook changes. */
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { type Change, changeOf, changesOf, isSuperseded, isApproved } from "../turn/cellChanges";
import { cellName } from "../turn/cellName";
import { counts, diff, hunks } from "../notebook/diff";
import type { ChangeKeeper, Standing } from "../notebook/notebook";
import { canUndo, undoChange, undoTurn } from "../notebook/undo";
import type { CallBlock, TurnView } from "../turn/turn";
import { markInvisible } from "./Source";
import { Output } from "./Output";
import { Problem } from "./Problem";
import { usePanel } from "../conversation/panelContext";
import "./review.css";
import { trans } from "../translation/translation";

/** Maximum number of lines of a diff that is only informative. */
const MOST = 400;
const SIGNS = { same: " ", gone: "-", new: "+" } as const;
const spoken = () => ({ same: "", gone: trans.__("removed:"), new: trans.__("added:") });

interface Shown {
  before: string;
  after: string;
  label: string;
  /** Maximum number of lines that are shown. A diff by which the user decides must show all lines. */
  most?: number;
}

export function Diff({ before, after, label, most = MOST }: Shown) {
  const lines = useMemo(() => hunks(diff(before, after)), [before, after]);
  return (
    <div class="ak-diff" role="group" aria-label={label} tabIndex={0}>
      {lines.slice(0, most).map((line, place) =>
        line ? (
          <div key={place} class={`ak-line ak-line-${line.kind}`}>
            <span class="ak-diff-number" aria-hidden="true">
              {line.after ?? line.before}
            </span>
            <span class="ak-sign" aria-hidden="true">
              {SIGNS[line.kind]}
            </span>
            <code>
              <span class="ak-unseen">{spoken()[line.kind]} </span>
              {markInvisible(line.text)}
            </code>
          </div>
        ) : (
          <div key={place} class="ak-line ak-left-out">
            {trans.__("unchanged lines")}
          </div>
        ),
      )}
      {lines.length > most && <div class="ak-line ak-left-out">{trans.__("%1 more lines", lines.length - most)}</div>}
      {lines.length === 0 && <div class="ak-line ak-left-out">{trans.__("The text stays as it is.")}</div>}
    </div>
  );
}

/** The review below a call that changed a cell; nothing for other calls. */
export function Review({ call }: { call: CallBlock }) {
  const change = useMemo(() => changeOf(call), [call]);
  return change && <Reviewed call={call} change={change} />;
}

function Reviewed({ call, change }: { call: CallBlock; change: Change }) {
  const { conversation } = usePanel();
  const { keeper, standing, place } = useStanding(change);
  const said = useSignal("");
  const name = title(change, place);
  const turn = conversation.entries.value.find((entry) => entry.id === change.turn)?.view.value;
  const step = turn ? isSuperseded(turn, change) : false;
  const size = useMemo(() => summary(change), [change]);
  const isOpen = standing === "open" && !isApproved(call);
  const told = step ? supersededText() : standingText(standing, change, isOpen);
  const buttons = (
    <>
      {isOpen && !step && (change.do === "insert" || change.do === "edit") && (
        <button type="button" class="ak-primary" onClick={() => keeper?.accept([change])}>
          {trans.__("Accept")}
        </button>
      )}
      {!step && (standing === "open" || standing === "accepted") && !change.lost && (
        <button type="button" onClick={() => (said.value = undoChange(keeper, change))}>
          {isOpen ? trans.__("Reject") : trans.__("Undo")}
        </button>
      )}
    </>
  );
  return (
    <ChangeCard
      change={change}
      standing={standing}
      label={trans.__("Change of a cell: %1", name)}
      name={name}
      told={[told, isOpen && change.do !== "move" ? size : ""].filter(Boolean).join(" · ")}
      open={isOpen && !step}
      buttons={buttons}
      problem={said.value}
    >
      {change.lost && <p class="ak-quiet">{trans.__("Its text is not shown: %1.", change.lost)}</p>}
      {!change.lost && change.do !== "move" && (
        <Diff before={change.before} after={change.after} label={trans.__("The change that was made, line by line")} />
      )}
    </ChangeCard>
  );
}

/** The correction of a failed cell: the diff, and buttons to accept or reject it. The cell changes only when the user
 * accepts, and "Undo" restores its text. Nothing is shown for a turn without a correction. */
export function Proposal({ turn }: { turn: TurnView }) {
  const { conversation } = usePanel();
  const change = conversation.corrections.proposed.value.find((one) => one.turn === turn.id);
  const ran = turn.blocks.findLast((block) => block.kind === "call" && block.name === "python");
  return change ? <Proposed change={change} printed={ran?.kind === "call" ? ran.output : ""} /> : null;
}

function Proposed({ change, printed }: { change: Change; printed: string }) {
  const { conversation } = usePanel();
  const { keeper, standing, place } = useStanding(change);
  const said = useSignal("");
  const isOpen = standing === "undone"; // the cell has the source that failed
  const name = cellName(place >= 0 ? place : change.index);
  const label = trans.__("Correction of %1", name);
  const buttons = (
    <>
      {isOpen && (
        <>
          <button type="button" class="ak-primary" onClick={() => (said.value = keeper?.apply(change) ?? "")}>
            {trans.__("Accept")}
          </button>
          <button type="button" onClick={() => conversation.corrections.reject(change, name)}>
            {trans.__("Reject")}
          </button>
        </>
      )}
      {standing === "accepted" && (
        <button type="button" onClick={() => (said.value = undoChange(keeper, change))}>
          {trans.__("Undo")}
        </button>
      )}
    </>
  );
  return (
    <ChangeCard
      change={change}
      standing={standing}
      label={label}
      name={label}
      told={isOpen ? trans.__("it ran in a draft without the error") : standingText(standing, change, false)}
      open={isOpen}
      buttons={buttons}
      problem={said.value}
    >
      <Diff
        before={change.before}
        after={change.after}
        label={trans.__("The proposed change, line by line")}
        most={Infinity}
      />
      {printed && <Output text={printed} label={trans.__("Output in the draft")} />}
    </ChangeCard>
  );
}

/** The status of a change and the current index of its cell; -1 if the cell is not there. Both are computed again when
 * the notebook changes. */
function useStanding(change: Change) {
  const keeper = usePanel().host.notebook?.changes;
  const version = keeper?.version.value; // grows when the document changes
  const standing = useMemo(() => keeper?.standing(change) ?? "closed", [keeper, change, version]);
  const place = useMemo(() => keeper?.place(change) ?? -1, [keeper, change, version]);
  return { keeper, standing, place };
}

interface Card {
  change: Change;
  standing: Standing;
  label: string;
  name: string;
  /** The status in words. */
  told: string;
  open: boolean;
  buttons: ComponentChildren;
  /** Why the user's last action on the card failed; empty if it did not. */
  problem: string;
  children: ComponentChildren;
}

/** The card that both the review of a change and a correction use. */
function ChangeCard({ change, standing, label, name, told, open, buttons, problem, children }: Card) {
  const { host } = usePanel();
  const card = useFocusInCard(open);
  return (
    <div
      class="ak-review"
      data-standing={standing}
      data-open={open || undefined}
      role="group"
      aria-label={label}
      ref={card}
    >
      <details open={open}>
        <summary>
          <strong>{name}</strong> <span class="ak-quiet">{told}</span>
        </summary>
        {children}
        <div class="ak-choices">
          {buttons}
          {change.do !== "delete" && standing !== "gone" && standing !== "closed" && (
            <button type="button" onClick={() => host.notebook?.reveal(change.cell)}>
              {trans.__("Show cell")}
            </button>
          )}
        </div>
      </details>
      <Problem text={problem} role="status" />
    </div>
  );
}

/** Moves the focus to the title of a card that closes while one of its buttons has the focus. */
function useFocusInCard(open: boolean) {
  const card = useRef<HTMLDivElement>(null);
  const hadFocus = card.current?.contains(document.activeElement) ?? false;
  useLayoutEffect(() => {
    if (hadFocus && !open) card.current?.querySelector("summary")?.focus();
  }, [open]);
  return card;
}

/** Buttons for all cell changes of a turn; nothing for a turn without any. */
export function ReviewTurn({ turn }: { turn: TurnView }) {
  const { host } = usePanel();
  const said = useSignal<string[]>([]);
  const keeper = host.notebook?.changes;
  const version = keeper?.version.value;
  const open = useMemo(() => (keeper ? unreviewedChanges(keeper, turn) : []), [keeper, turn, version]);
  const undoable = useMemo(() => canUndo(host.notebook, turn), [host.notebook, turn, version]);
  const all = useMemo(() => changesOf(turn).filter((change) => !isSuperseded(turn, change)).length, [turn]);
  if (!keeper || turn.state === "open" || all === 0) return null;
  return (
    <div class="ak-review-turn" role="group" aria-label={trans.__("All changes of this turn")}>
      {open.length > 1 && (
        <button type="button" class="ak-primary" onClick={() => keeper.accept(open)}>
          {trans.__("Accept all")}
        </button>
      )}
      {undoable && (
        <button type="button" onClick={() => (said.value = undoTurn(host.notebook, turn))}>
          {open.length > 1 && open.length === all ? trans.__("Reject all") : trans.__("Undo changes")}
        </button>
      )}
      <div role="status">
        {said.value.map((sentence) => (
          <p key={sentence} class="ak-quiet">
            {sentence}
          </p>
        ))}
      </div>
    </div>
  );
}

/** The inserts and edits of a turn that the user has neither approved beforehand nor accepted since. */
function unreviewedChanges(keeper: ChangeKeeper, turn: TurnView): Change[] {
  const asked = new Set(turn.blocks.flatMap((block) => (block.kind === "call" && isApproved(block) ? [block.id] : [])));
  return changesOf(turn).filter(
    (change) =>
      !asked.has(change.call) &&
      (change.do === "insert" || change.do === "edit") &&
      !isSuperseded(turn, change) &&
      keeper.standing(change) === "open",
  );
}

const supersededText = () => trans.__("changed again later in this turn");
const deeds = () => ({
  insert: trans.__("New"),
  edit: trans.__("Edited"),
  delete: trans.__("Deleted"),
  move: trans.__("Moved"),
});

/** The title of a change, with the current number of its cell, or the former number if the cell is gone. */
function title(change: Change, place: number): string {
  return `${deeds()[change.do]}: ${cellName(place >= 0 ? place : change.index)}`;
}

function summary(change: Change): string {
  const found = counts(diff(change.before, change.after));
  const added = found.new > 0 && trans._n("%1 line added", "%1 lines added", found.new);
  const removed = found.gone > 0 && trans._n("%1 line removed", "%1 lines removed", found.gone);
  return [added, removed].filter(Boolean).join(", ") || trans.__("no line changed");
}

/** The status of a change in words; empty where the buttons say it. */
function standingText(standing: Standing, change: Change, isOpen: boolean): string {
  switch (standing) {
    case "open":
      if (change.do === "delete" || change.do === "move") return "";
      return isOpen ? trans.__("keep it?") : trans.__("in the notebook");
    case "accepted":
      return trans.__("accepted");
    case "undone":
      return change.do === "delete" ? trans.__("restored") : trans.__("undone");
    case "touched":
      return trans.__("you have changed the cell, so it stays unchanged");
    case "gone":
      return change.do === "insert" ? trans.__("it has been removed") : trans.__("the cell has been deleted");
    case "closed":
      return trans.__("its notebook is not open here");
  }
}
