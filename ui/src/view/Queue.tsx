/** Messages that wait for the running turn; each can be taken back. */
import { useDesk } from "./panelStateContext";

export function Queue() {
  const { conversation } = useDesk();
  const waiting = conversation.running.value.slice(1);
  if (waiting.length === 0) return null;
  return (
    <ol class="ak-queue" aria-label="Waiting messages">
      {waiting.map((entry, index) => (
        <li key={entry.id}>
          <span class="ak-cut">{entry.prompt || "A message"}</span>
          <span class="ak-state">{index === 0 ? "next" : `after ${index + 1} others`}</span>
          <button
            type="button"
            aria-label={`Do not ask: ${entry.prompt}`}
            onClick={() => void conversation.cancel(entry.id)}
          >
            Take back
          </button>
        </li>
      ))}
    </ol>
  );
}
