/** Why a turn ended without an answer, and what the user can do. */
import type { Entry } from "../conversation/conversation";
import { endOf, serverText } from "../turn/serverTexts";
import type { TurnView } from "../turn/turn";
import { Icon } from "./Icon";
import { Source } from "./Source";
import { usePanel } from "../conversation/panelContext";
import { trans } from "../translation/translation";

export function UnfinishedTurn({ entry, turn }: { entry: Entry; turn: TurnView }) {
  const { conversation } = usePanel();
  if (turn.state === "open" || turn.state === "committed") return null;
  const details = Object.entries(turn.error?.details ?? {});
  return (
    <div class="ak-ended">
      <p>
        <Icon name={turn.state === "cancelled" ? "info" : "warning"} />
        <span>
          {endOf(turn)} {serverText(turn.error?.hint ?? "")}
        </span>
      </p>
      {details.length > 0 && (
        <details>
          <summary>{trans.__("Details")}</summary>
          <Source
            code={details.map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join("\n")}
            language=""
            label={trans.__("Details")}
          />
        </details>
      )}
      {turn.state !== "cancelled" && (
        <button type="button" onClick={() => void conversation.retry(entry)}>
          {trans.__("Try again")}
        </button>
      )}
    </div>
  );
}
