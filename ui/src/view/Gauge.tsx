/** How much of the model's context this conversation uses. */
import { useDesk } from "./panelStateContext";
import { formatNumber, trans } from "../translation/translation";

const NEARLY = 0.8;

export function Gauge() {
  const desk = useDesk();
  const context = desk.usage.value?.context;
  const total = desk.usage.value?.total;
  const seen = desk.conversation.entries.value.at(-1)?.view.value.context;
  if (!context || !total) return null;
  const { tokens, window } = context;
  const part = window > 0 ? Math.min(1, tokens / window) : 0;
  const percent = `${Math.round(part * 100)} %`;
  const words = [
    window > 0
      ? trans.__(
          "About %1 of %2 tokens of the model's context (%3).",
          formatNumber(tokens),
          formatNumber(window),
          percent,
        )
      : trans.__("About %1 tokens; the size of the model's context is not known.", formatNumber(tokens)),
    seen?.dropped ? trans.__("%1 older messages did not fit.", seen.dropped) : "",
    seen?.shortened ? trans.__("%1 results were shortened.", seen.shortened) : "",
    seen?.summary ? trans.__("A summary replaces the oldest messages.") : "",
    trans.__(
      "Total: %1 tokens read, %2 written.",
      formatNumber(total.prompt_tokens),
      formatNumber(total.completion_tokens),
    ),
    part > NEARLY ? trans.__("/compact makes it shorter.") : "",
  ].filter(Boolean);
  return (
    <span class="ak-gauge-place">
      <button type="button" class="ak-gauge" aria-label={trans.__("Context. %1", words.join(" "))}>
        <span class={part > NEARLY ? "ak-gauge-bar ak-gauge-high" : "ak-gauge-bar"} style={{ "--ak-part": percent }} />
        {window > 0 && percent}
      </button>
      <span class="ak-gauge-words" aria-hidden="true">
        {words.map((line) => (
          <span key={line}>{line}</span>
        ))}
      </span>
    </span>
  );
}
