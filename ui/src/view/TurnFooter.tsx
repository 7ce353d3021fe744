/** The footer of a turn: state, cost, changes and actions. It is there from the start, so that nothing moves when the
 * turn ends. */
import { useSignal } from "@preact/signals";
import type { Entry } from "../conversation/conversation";
import { copy } from "../markdown/clipboard";
import { changeSummary } from "../turn/changeSummary";
import { needsAnswer, type TurnView } from "../turn/turn";
import { pluralize, formatDuration, stateOf } from "../turn/labels";
import { Elapsed } from "./Elapsed";
import { usePanel } from "../conversation/panelContext";
import { Versions } from "./Versions";

export function TurnFooter({ entry, turn }: { entry: Entry; turn: TurnView }) {
  return (
    <footer class="ak-footer">
      <Facts turn={turn} />
      <Actions entry={entry} turn={turn} />
    </footer>
  );
}

function Facts({ turn }: { turn: TurnView }) {
  const { showFacts } = usePanel().conversation.preferences.values.value;
  if (turn.state === "open") {
    return (
      <p class="ak-facts">
        {needsAnswer(turn) ? "Needs your answer" : turn.place > 0 ? "Waiting" : stateOf(turn)}{" "}
        {turn.began > 0 && <Elapsed since={turn.began} />}
      </p>
    );
  }
  const changed = changeSummary(turn);
  return (
    <p class="ak-facts" title={[turn.model, turn.local ? "local" : `sent to ${turn.host}`].filter(Boolean).join(", ")}>
      {[turn.state === "committed" ? "" : stateOf(turn), ...(showFacts ? cost(turn) : []), ...changed]
        .filter(Boolean)
        .join(" · ")}
    </p>
  );
}

/** "1,203 tokens read (1,000 reused)", "45 written", "3.1 s". */
export function cost({ usage, began, ended }: TurnView): string[] {
  const read = usage["prompt_tokens"] ?? 0;
  const reused = usage["reused_tokens"] ?? 0;
  const about = usage["estimated"] ? "about " : "";
  return [
    read > 0
      ? `${about}${pluralize(read, "token")} read${reused > 0 ? ` (${reused.toLocaleString("en")} reused)` : ""}`
      : "",
    read > 0 ? `${(usage["completion_tokens"] ?? 0).toLocaleString("en")} written` : "",
    // `turn_s` leaves out the time in which the user was asked. Turns that an earlier version stored do not have it.
    formatDuration(usage["turn_s"] ?? Math.max(usage["seconds"] ?? 0, ended - began)),
  ].filter(Boolean);
}

function Actions({ entry, turn }: { entry: Entry; turn: TurnView }) {
  const { conversation } = usePanel();
  const said = useSignal("");
  const asking = useSignal(false);
  const over = turn.state !== "open";
  const retry = async () => {
    if (asking.value) return;
    asking.value = true;
    try {
      await conversation.retry(entry);
    } finally {
      asking.value = false;
    }
  };
  const copied = () =>
    copy(markdown(turn)).then(
      () => (said.value = "Copied"),
      (error: unknown) => (said.value = error instanceof Error ? error.message : "Not copied"),
    );
  return (
    <div class="ak-actions">
      <button
        type="button"
        class="ak-tool"
        disabled={!over}
        title="The answer, as Markdown"
        onClick={() => void copied()}
      >
        {said.value || "Copy"}
      </button>
      <button
        type="button"
        class="ak-tool"
        disabled={!over}
        title="Change what was asked, and ask in this place"
        onClick={() => (conversation.editing.value = entry)}
      >
        Edit
      </button>
      <button
        type="button"
        class="ak-tool"
        disabled={!over || asking.value}
        title="Ask the same again in this place; this answer is kept"
        onClick={() => void retry()}
      >
        Retry
      </button>
      <Versions turn={turn} />
    </div>
  );
}

/** The text of the answer, without its calls. */
export const markdown = (turn: TurnView): string =>
  turn.blocks.flatMap((block) => (block.kind === "text" ? [block.text.trim()] : [])).join("\n\n");
