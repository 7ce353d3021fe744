/** A card with what happened while the user was away, and possible actions. */
import type { Entry } from "../conversation/entry";
import { toolLabel, verbOf } from "../turn/labels";
import { useDesk } from "./panelStateContext";
import { StateCard } from "./StateCard";
import { trans } from "../translation/translation";

/** Number of prompts that are listed, the newest ones. */
const NAMED = 3;

export function SinceLastVisitCard() {
  const desk = useDesk();
  const news = desk.away.news.value;
  if (!news) return null;
  const { turns, more, approvals, lost } = news;
  const decided = decidedApprovals(desk.conversation.entries.value);
  const open = approvals.filter(({ approval }) => !decided.has(approval));
  const isEmpty = turns.length + open.length === 0 && !lost.kernel && !(lost.sandbox && lost.pieces > 0);
  if (isEmpty) return null;
  const failed = turns.filter(({ state }) => state !== "committed").length;
  return (
    <StateCard tone="info" close={() => desk.away.dismiss()}>
      <p>{trans.__("Since your last visit:")}</p>
      <ul class="ak-away">
        {turns.length > 0 && (
          <li>
            {more
              ? trans.__("%1 turns or more ended", turns.length)
              : trans._n("a turn ended", "%1 turns ended", turns.length)}
            {failed > 0 &&
              `, ${turns.length === 1 ? trans.__("without an answer") : trans.__("%1 of them without an answer", failed)}`}
            :{" "}
            {turns
              .slice(-NAMED)
              .map(({ prompt }) => brief(prompt.trim()))
              .join("; ")}
            {turns.length > NAMED && ` ${trans.__("and %1 earlier", turns.length - NAMED)}`}
          </li>
        )}
        {open.map(({ approval, label, name, target }) => (
          <li key={approval}>
            {trans.__("%1 waits for your answer", toolLabel(verbOf(name) === name ? label || name : name, target))}
          </li>
        ))}
        {lost.kernel && <li>{trans.__("variables of earlier turns are gone: the kernel is new")}</li>}
        {lost.sandbox && lost.pieces > 0 && (
          <li>
            {trans.__("variables of the sandbox are gone: %1", lost.sandbox)}{" "}
            <button type="button" onClick={() => void desk.askToRebuild()}>
              {trans.__("Rebuild them...")}
            </button>
          </li>
        )}
      </ul>
    </StateCard>
  );
}

/** Approvals that the user has answered since the news were requested. */
function decidedApprovals(entries: readonly Entry[]): ReadonlySet<string> {
  const calls = entries.flatMap(({ view }) => view.value.blocks.filter((block) => block.kind === "call"));
  const decided = calls.filter(({ approval, done }) => approval && (approval.decision || done));
  return new Set(decided.map(({ approval }) => approval?.approval ?? ""));
}

const brief = (prompt: string): string => (prompt.length > 60 ? `${prompt.slice(0, 57)}...` : prompt);
