/** The footer of a turn: state, cost, changes and actions. It is there from the start, so that nothing moves when the
 * turn ends. */
import { Fragment } from "preact";
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import type { Entry } from "../conversation/conversation";
import { copy } from "../markdown/clipboard";
import { isUndone } from "../notebook/undo";
import { changeSummary } from "../turn/changeSummary";
import { needsAnswer, type TurnView } from "../turn/turn";
import { formatDuration, stateOf } from "../turn/labels";
import { Elapsed } from "./Elapsed";
import { usePanel } from "../conversation/panelContext";
import { formatNumber, trans } from "../translation/translation";
import { errorMessage, ApiError } from "../transport/transport";
import { Icon } from "../markdown/Icon";
import { Problem } from "./Problem";

export function TurnFooter({ entry, turn }: { entry: Entry; turn: TurnView }) {
  return (
    <footer class="ak-footer">
      <Facts turn={turn} />
      <Actions entry={entry} turn={turn} />
    </footer>
  );
}

function Facts({ turn }: { turn: TurnView }) {
  const { conversation, host } = usePanel();
  const { showFacts } = conversation.preferences.values.value;
  const keeper = host.notebook?.changes;
  const version = keeper?.version.value;
  const changes = useMemo(
    () => (turn.state === "open" ? [] : changeSummary(turn, (change) => isUndone(keeper, turn, change))),
    [turn, keeper, version],
  );
  if (turn.state === "open") {
    return (
      <p class="ak-facts">
        {needsAnswer(turn) ? trans.__("Needs your answer") : turn.place > 0 ? trans.__("Waiting") : stateOf(turn)}{" "}
        {turn.began > 0 && <Elapsed since={turn.began} />}
      </p>
    );
  }
  const facts = [turn.state === "failed" ? stateOf(turn) : "", ...(showFacts ? cost(turn) : []), ...changes];
  return (
    <p
      class="ak-facts"
      title={[turn.model, turn.local ? trans.__("local") : trans.__("sent to %1", turn.host)]
        .filter(Boolean)
        .join(", ")}
    >
      {facts.filter(Boolean).map((fact, at) => (
        <Fragment key={at}>
          {at > 0 && "\u00a0· "}
          <span>{fact}</span>
        </Fragment>
      ))}
    </p>
  );
}

/** What a turn has cost, such as "1,203 tokens read (1,000 reused)", "45 written", "3.1 s". */
export function cost({ usage, began, ended }: TurnView): string[] {
  const read = usage["prompt_tokens"] ?? 0;
  const reused = usage["reused_tokens"] ?? 0;
  const tokens = trans._n("%2 token read", "%2 tokens read", read, formatNumber(read));
  const about = usage["estimated"] ? trans.__("about %1", tokens) : tokens;
  return [
    read > 0 && (reused > 0 ? trans.__("%1 (%2 reused)", about, formatNumber(reused)) : about),
    read > 0 && trans.__("%1 written", formatNumber(usage["completion_tokens"] ?? 0)),
    // `turn_s` leaves out the time in which the user was asked. Turns that an earlier version stored do not have it.
    formatDuration(usage["turn_s"] ?? Math.max(usage["seconds"] ?? 0, ended - began)),
  ].filter((fact) => typeof fact === "string" && fact !== "") as string[];
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
      () => (said.value = trans.__("Copied")),
      (error: unknown) => (said.value = errorMessage(error)),
    );
  return (
    <div class="ak-actions">
      <button
        type="button"
        class="ak-tool"
        disabled={!over}
        title={trans.__("The answer, as Markdown")}
        onClick={() => void copied()}
      >
        {said.value || trans.__("Copy")}
      </button>
      <button
        type="button"
        class="ak-tool"
        disabled={!over}
        title={trans.__("Edit the message and send it again at this place")}
        onClick={() => (conversation.editing.value = entry)}
      >
        {trans.__("Edit")}
      </button>
      <button
        type="button"
        class="ak-tool"
        disabled={!over || asking.value}
        title={trans.__("Send the same message again at this place; this answer is kept")}
        onClick={() => void retry()}
      >
        {trans.__("Retry")}
      </button>
      <Versions turn={turn} />
    </div>
  );
}

/** The text of the answer, without its calls. */
export const markdown = (turn: TurnView): string =>
  turn.blocks.flatMap((block) => (block.kind === "text" ? [block.text.trim()] : [])).join("\n\n");

interface Listed {
  versions: { turn: string; branch: string }[];
}

/** Switches between several answers to one prompt, each on its own branch. */
function Versions({ turn }: { turn: TurnView }) {
  const { conversation, host } = usePanel();
  const problem = useSignal("");
  const { version } = turn;
  if (!version || version.count < 2) return null;
  const to = async (step: number) => {
    problem.value = "";
    try {
      const path = `turns/${turn.id}/versions?session=${encodeURIComponent(turn.session)}`;
      const { versions } = await host.transport.request<Listed>("GET", path);
      const other = versions[versions.findIndex((one) => one.turn === turn.id) + step];
      if (other) await conversation.toBranch(other.branch);
    } catch (error) {
      problem.value = error instanceof ApiError ? error.message : trans.__("The branch could not be shown.");
    }
  };
  return (
    <span class="ak-versions" role="group" aria-label={trans.__("Version %1 of %2", version.number, version.count)}>
      <Arrow name="left" label={trans.__("Previous version")} off={version.number <= 1} onClick={() => void to(-1)} />
      <span title={trans.__("Branch %1", version.branch)}>
        {version.number}/{version.count}
      </span>
      <Arrow
        name="right"
        label={trans.__("Next version")}
        off={version.number >= version.count}
        onClick={() => void to(1)}
      />
      <Problem text={problem.value} inline />
    </span>
  );
}

function Arrow({
  name,
  label,
  off,
  onClick,
}: {
  name: "left" | "right";
  label: string;
  off: boolean;
  onClick: () => void;
}) {
  return (
    <button type="button" class="ak-tool" aria-label={label} title={label} disabled={off} onClick={onClick}>
      <Icon name={name} />
    </button>
  );
}
