/** How much of the model's context this conversation uses. */
import { useDesk } from "./panelStateContext";

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
      ? `About ${tokens.toLocaleString()} of ${window.toLocaleString()} tokens of the model's context (${percent}).`
      : `About ${tokens.toLocaleString()} tokens; the size of the model's context is not known.`,
    seen?.dropped ? `${seen.dropped} older messages did not fit.` : "",
    seen?.shortened ? `${seen.shortened} results were shortened.` : "",
    seen?.summary ? "A summary replaces the oldest messages." : "",
    `Total: ${total.prompt_tokens.toLocaleString()} tokens read, ${total.completion_tokens.toLocaleString()} written.`,
    part > NEARLY ? "/compact makes it shorter." : "",
  ].filter(Boolean);
  return (
    <span class="ak-gauge-place">
      <button type="button" class="ak-gauge" aria-label={`Context. ${words.join(" ")}`}>
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
