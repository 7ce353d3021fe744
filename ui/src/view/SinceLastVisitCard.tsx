/** A card with what happened while the user was away, and possible actions. */
import { useDesk } from "./panelStateContext";
import { StateCard } from "./StateCard";

/** Number of prompts that are listed, the newest ones. */
const NAMED = 3;

export function SinceLastVisitCard() {
  const desk = useDesk();
  const news = desk.away.news.value;
  if (!news) return null;
  const { turns, more, approvals, lost } = news;
  const failed = turns.filter(({ state }) => state !== "committed").length;
  return (
    <StateCard tone="info" close={() => desk.away.dismiss()}>
      <p>Since your last visit:</p>
      <ul class="ak-away">
        {turns.length > 0 && (
          <li>
            {turns.length === 1 ? "a turn ended" : `${turns.length} turns${more ? " or more" : ""} ended`}
            {failed > 0 && `, ${failed} of them without an answer`}:{" "}
            {turns
              .slice(-NAMED)
              .map(({ prompt }) => brief(prompt.trim()))
              .join("; ")}
            {turns.length > NAMED && ` and ${turns.length - NAMED} earlier`}
          </li>
        )}
        {approvals.map(({ approval, label, name, target }) => (
          <li key={approval}>
            {label || name} waits for your answer{target && `: ${target}`}
          </li>
        ))}
        {lost.kernel && <li>variables of your kernel are gone: {lost.kernel}</li>}
        {lost.sandbox && lost.pieces > 0 && (
          <li>
            variables of the sandbox are gone: {lost.sandbox}{" "}
            <button type="button" onClick={() => void desk.askToRebuild()}>
              Rebuild them...
            </button>
          </li>
        )}
      </ul>
    </StateCard>
  );
}

const brief = (prompt: string): string => (prompt.length > 60 ? `${prompt.slice(0, 57)}...` : prompt);
