/** A correction of a failed cell: the diff, and buttons to accept or reject it. The cell changes only when the user
 * accepts, and "Undo" takes the change back. */
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { cellName } from "../turn/cellName";
import { usePanel } from "../conversation/panelContext";
import { undoChange } from "../notebook/undo";
import { Diff, standingText } from "./Review";
import { Output } from "./Output";
import { Problem } from "./Problem";
import type { TurnView } from "../turn/turn";
import type { Change } from "../turn/cellChanges";
import { trans } from "../translation/translation";

/** The proposal of a turn; nothing for a turn without one. */
export function Proposal({ turn }: { turn: TurnView }) {
  const { conversation } = usePanel();
  const change = conversation.corrections.proposed.value.find((one) => one.turn === turn.id);
  const ran = turn.blocks.findLast((block) => block.kind === "call" && block.name === "python");
  return change ? <Proposed change={change} printed={ran?.kind === "call" ? ran.output : ""} /> : null;
}

function Proposed({ change, printed }: { change: Change; printed: string }) {
  const { conversation, host } = usePanel();
  const said = useSignal("");
  const keeper = host.notebook?.changes;
  const version = keeper?.version.value; // grows when the document changes
  const standing = useMemo(() => keeper?.standing(change) ?? "closed", [keeper, change, version]);
  const isOpen = standing === "undone"; // the cell has the source that failed
  const name = cellName(keeper?.place(change) ?? change.index);
  return (
    <div class="ak-review" role="group" aria-label={trans.__("Correction of %1", name)}>
      <details open={isOpen}>
        <summary>
          <strong>{trans.__("Correction of %1", name)}</strong>{" "}
          <span class="ak-quiet">
            {isOpen ? trans.__("it ran in a draft without the error") : standingText(standing, change, false)}
          </span>
        </summary>
        <Diff
          before={change.before}
          after={change.after}
          label={trans.__("The proposed change, line by line")}
          most={Infinity}
        />
        {printed && <Output text={printed} label={trans.__("Output in the draft")} />}
        <div class="ak-choices">
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
          {standing !== "gone" && standing !== "closed" && (
            <button type="button" onClick={() => host.notebook?.reveal(change.cell)}>
              {trans.__("Show cell")}
            </button>
          )}
        </div>
      </details>
      <Problem text={said.value} role="status" />
    </div>
  );
}
