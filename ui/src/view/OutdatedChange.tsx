/** For a proposed change of a cell that cannot be made any more, because the cell has changed since: the text for the
 * user, and the button that asks the agent for a new proposal. */
import { useMemo } from "preact/hooks";
import { usePanel } from "../conversation/panelContext";
import type { Obstacle } from "../notebook/notebook";
import type { ProposedChange } from "../turn/cellChanges";
import type { Choice } from "./useDecision";
import { trans } from "../translation/translation";

/** The reason of the denial that this button sends to the model. `deniedReason` translates it for the user. */
const AGAIN = "The cell has changed since. Read it again, and propose the change for its new text.";

/** Why the change cannot be made as it is shown; empty if it can. It is computed again when the notebook changes. */
export function useObstacle(change: ProposedChange | null): Obstacle {
  const { conversation, host } = usePanel();
  const keeper = host.notebook?.changes;
  const version = keeper?.version.value; // grows when the document changes
  const path = conversation.place.value.path;
  const { do: deed, cell, before, below } = change ?? {};
  return useMemo(
    () => (change && keeper?.obstacle(change, path)) || "",
    [keeper, version, path, deed, cell, before, below],
  );
}

export function Outdated({ obstacle }: { obstacle: Obstacle }) {
  return (
    <p class="ak-problem" role="status">
      {obstacle === "gone"
        ? trans.__("The cell has been deleted, so this change cannot be made any more.")
        : trans.__("The cell has changed since this change was proposed, so the change can no longer be made.")}
    </p>
  );
}

interface Again {
  obstacle: Obstacle;
  disabled: boolean;
  onDeny: (choice: Choice) => void;
}

export function ProposeAgain({ obstacle, disabled, onDeny }: Again) {
  if (obstacle !== "changed") return null;
  const ask = () => onDeny({ decision: "deny", remember: "once", message: AGAIN });
  return (
    <button type="button" class="ak-primary" aria-disabled={disabled} onClick={ask}>
      {trans.__("Propose again")}
    </button>
  );
}

/** The reason of a denial as the user reads it. */
export const deniedReason = (reason: string): string =>
  reason === AGAIN ? trans.__("The cell has changed since, and the agent was asked to propose again") : reason;
