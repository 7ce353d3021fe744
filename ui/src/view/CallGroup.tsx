/** Several read-only calls in a row as one line, which opens to a line for each. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { summary, type Reading } from "../turn/groups";
import { Call } from "./Call";
import { Icon } from "./Icon";
import { revealedCall } from "./revealedCall";
import { trans } from "../translation/translation";

export function CallGroup({ reading, session }: { reading: Reading; session: string }) {
  const open = useSignal(false);
  const sent = reading.calls.some((call) => call.id === revealedCall.value?.call);
  useEffect(() => {
    if (sent) open.value = true;
  }, [sent]);
  return (
    <div class="ak-readings">
      <button type="button" class="ak-row" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
        <Icon name="read" />
        <span class="ak-verb ak-long">{summary(reading)}</span>
        <span class="ak-outcome">{trans.__("done")}</span>
      </button>
      {open.value && (
        <div class="ak-inside">
          {reading.calls.map((call) => (
            <Call key={call.id} call={call} session={session} />
          ))}
        </div>
      )}
    </div>
  );
}
