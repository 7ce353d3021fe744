import { useSurroundings } from "./Panel";
import { Turn } from "./Turn";

export function Turns() {
  const { conversation } = useSurroundings();
  const failure = conversation.failure.value;
  return (
    <div class="ak-turns" role="log" aria-label="Conversation" tabIndex={0}>
      {conversation.older.value && (
        <button type="button" onClick={() => void conversation.loadOlder()}>
          Earlier turns
        </button>
      )}
      {conversation.entries.value.map((entry) => (
        <Turn key={entry.id} entry={entry} />
      ))}
      {failure && (
        <p class="ak-failure" role="alert">
          {failure.body.message} {failure.body.hint}
        </p>
      )}
    </div>
  );
}
