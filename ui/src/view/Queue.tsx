/** Messages that wait for the running turn; each can be returned to the message field. */
import { askedText } from "../turn/askedText";
import { useDesk } from "./panelStateContext";
import { trans } from "../translation/translation";

export function Queue() {
  const { conversation } = useDesk();
  const waiting = conversation.running.value.slice(1);
  if (waiting.length === 0) return null;
  return (
    <ol class="ak-queue" aria-label={trans.__("Waiting messages")}>
      {waiting.map((entry, index) => (
        <li key={entry.id}>
          <span class="ak-cut">{askedText(entry.prompt) || trans.__("A message")}</span>
          <span class="ak-state">{index === 0 ? trans.__("next") : trans.__("after %1 others", index + 1)}</span>
          <button
            type="button"
            title={trans.__("Return this message to the message field")}
            aria-label={trans.__("Take back: %1", askedText(entry.prompt))}
            onClick={() => void conversation.cancel(entry.id)}
          >
            {trans.__("Take back")}
          </button>
        </li>
      ))}
    </ol>
  );
}
