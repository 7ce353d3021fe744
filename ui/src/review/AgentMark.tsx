/** The mark beside the prompt of a cell that the agent wrote. On hover or focus it shows the user's request and its
 * time; a click opens the turn in the panel. */
import { usePanel } from "../conversation/panelContext";
import type { WrittenCell } from "../notebook/notebook";
import { formatMoment, trans } from "../translation/translation";

const MAX_PROMPT = 80;

export function AgentMark({ cell, onOpen }: { cell: WrittenCell; onOpen: () => void }) {
  const { conversation } = usePanel();
  const entry = conversation.entries.value.find((one) => one.id === cell.turn);
  const done = cell.made ? trans.__("Added by the agent") : trans.__("Changed by the agent");
  const began = entry?.view.value.began ?? 0;
  const when = began > 0 ? formatMoment(began) : "";
  const prompt = entry?.prompt.replace(/\s+/g, " ").trim() ?? "";
  const asked = prompt.length > MAX_PROMPT ? `${prompt.slice(0, MAX_PROMPT)}...` : prompt;
  const about = [[done, when].filter(Boolean).join(", "), asked && `“${asked}”`].filter(Boolean).join(": ");
  return (
    <button type="button" class="ak-agent-mark" aria-label={trans.__("%1. Show the turn.", about)} onClick={onOpen}>
      <svg viewBox="0 0 24 24" width="14" height="14" aria-hidden="true" focusable="false">
        <path
          fill="currentColor"
          fill-rule="evenodd"
          d="M4 4h16a2 2 0 0 1 2 2v10a2 2 0 0 1-2 2h-7l-5 4v-4H4a2 2 0 0 1-2-2V6a2 2 0 0 1 2-2zm0 2v10h6v2.2l2.3-2.2H20V6H4z"
        />
      </svg>
      <span class="ak-agent-mark-about" aria-hidden="true">
        {about}
      </span>
    </button>
  );
}
