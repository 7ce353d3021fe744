/** A prompt and its answer. A block of the answer is not rendered again as long as it is the same object, as complete
 * blocks are. */
import { useMemo, useLayoutEffect, useRef } from "preact/hooks";
import type { Entry } from "../conversation/conversation";
import { queuedEntries } from "../conversation/entryList";
import { Markdown } from "../markdown/Markdown";
import { askedText } from "../turn/askedText";
import { groupBlocks, type Line } from "../turn/groups";
import { hasOpenApproval, type TextBlock, type NoticeBlock, type TurnView } from "../turn/turn";
import type { CheckedNumber } from "../wire/events";
import { Call, CallGroup } from "./Call";
import { Files } from "./Files";
import { TurnFooter } from "./TurnFooter";
import { ErrorBoundary } from "./ErrorBoundary";
import { CheckedNumbers } from "./CheckedNumbers";
import { Proposal, ReviewTurn } from "./Review";
import { RowsAnswer } from "./RowsAnswer";
import { usePanel } from "../conversation/panelContext";
import { trans } from "../translation/translation";
import { useSignal } from "@preact/signals";
import { shownTitle } from "../turn/cellName";
import { Gallery } from "../media/Gallery";
import { serverText, endOf, waitingText } from "../turn/serverTexts";
import { Icon } from "../markdown/Icon";
import { markInvisible, Source } from "./Source";
import { formatDuration } from "../turn/labels";
import { Elapsed } from "./Elapsed";

/** A turn of the conversation. A message in the queue is not one yet: the composer shows it. */
export function Turn({ entry }: { entry: Entry }) {
  const { conversation } = usePanel();
  const { state, model } = entry.view.value;
  const mayWait = state === "open" && !model; // the other turns do not depend on the running ones
  return mayWait && queuedEntries(conversation.running.value).includes(entry) ? null : <BegunTurn entry={entry} />;
}

function BegunTurn({ entry }: { entry: Entry }) {
  const turn = entry.view.value;
  const blocks = useMemo(() => groupBlocks(turn.blocks), [turn.blocks]);
  const left = turn.state === "open" ? "" : describeLeftOut(turn);
  const answer = turn.numbers.length > 0 ? turn.blocks.findLast((block) => block.kind === "text") : undefined;
  return (
    <article
      class="ak-turn"
      data-turn={turn.id}
      data-state={turn.state}
      tabIndex={-1}
      aria-label={trans.__("Asked: %1", askedText(entry.prompt).slice(0, 80))}
      aria-busy={turn.state === "open"}
    >
      <Prompt entry={entry} />
      {left && <p class="ak-quiet">{left}</p>}
      {blocks.map((block) => (
        <ErrorBoundary key={block.id} of={block} text={textOf(block)}>
          <Shown block={block} session={turn.session} numbers={block.id === answer?.id ? turn.numbers : NONE} />
        </ErrorBoundary>
      ))}
      <ErrorBoundary of={turn.files}>
        <Files files={turn.files} />
      </ErrorBoundary>
      <WaitingLine turn={turn} />
      <UnfinishedTurn entry={entry} turn={turn} />
      <ErrorBoundary of={turn}>
        <ReviewTurn turn={turn} />
        <Proposal turn={turn} />
      </ErrorBoundary>
      <CellAsks entry={entry} />
      <TurnFooter entry={entry} turn={turn} />
    </article>
  );
}

/** Says that the cell of this turn asks a question that can only be answered there, such as whether to keep a result.
 * It is shown at the newest turn of the cell. */
function CellAsks({ entry }: { entry: Entry }) {
  const { host, conversation } = usePanel();
  const cell = host.notebook?.asking?.value;
  const newest = conversation.entries.value.findLast((other) => other.cell === cell);
  if (!cell || newest !== entry || hasOpenApproval(entry.view.value)) return null;
  return (
    <p class="ak-again">
      {trans.__("Its cell needs your answer.")}{" "}
      <button type="button" class="ak-link" onClick={() => host.notebook?.reveal(cell)}>
        {trans.__("Show the cell")}
      </button>
    </p>
  );
}

interface Part {
  block: Line;
  session: string;
  numbers: readonly CheckedNumber[];
}

const NONE: readonly CheckedNumber[] = [];

const textOf = (block: Line): string => (block.kind === "rows" ? block.text.text : "text" in block ? block.text : "");

function Shown({ block, session, numbers }: Part) {
  const known =
    block.kind === "reading" ? block.calls.map((call) => call.id).join() : block.kind === "rows" ? block.text : block;
  return useMemo(() => renderPart({ block, session, numbers }), [known, session, numbers]);
}

function renderPart({ block, session, numbers }: Part) {
  switch (block.kind) {
    case "text":
      return <Answer block={block} numbers={numbers} />;
    case "rows":
      return (
        <RowsAnswer block={block} session={session}>
          <Answer block={block.text} numbers={numbers} />
        </RowsAnswer>
      );
    case "reasoning":
      return <Reasoning block={block} />;
    case "call":
      return <Call call={block} session={session} />;
    case "notice":
      return <Notice block={block} />;
    case "reading":
      return <CallGroup reading={block} session={session} />;
  }
}

function Answer({ block, numbers }: { block: TextBlock; numbers: readonly CheckedNumber[] }) {
  return (
    <CheckedNumbers numbers={numbers}>
      <Markdown text={block.text} done={block.done} />
    </CheckedNumbers>
  );
}

/** The prompt of a turn, with its attachments. */
function Prompt({ entry }: { entry: Entry }) {
  const { host } = usePanel();
  const body = useRef<HTMLDivElement>(null);
  const whole = useSignal(false);
  const cut = useSignal(false);
  useLayoutEffect(() => {
    const { current } = body;
    if (current && !whole.value) cut.value = current.scrollHeight > current.clientHeight + 1;
  }, [entry.prompt]);
  // The server stores files apart from the other context; a message that this page sent has their names in both.
  const files = (entry.inputs ?? []).map(({ name }) => name).filter((name) => !entry.context.includes(name));
  const chips = [...entry.context, ...files];
  return (
    <div class="ak-prompt">
      {(chips.length > 0 || entry.cell) && (
        <p class="ak-chips">
          {entry.cell && host.notebook && (
            <button type="button" class="ak-chip ak-tool" onClick={() => host.notebook?.reveal(entry.cell)}>
              {trans.__("Show cell")}
            </button>
          )}
          {chips.map((chip) => (
            <span class="ak-chip" key={chip}>
              <bdi>{markInvisible(shownTitle(chip))}</bdi>
            </span>
          ))}
        </p>
      )}
      <div class={`ak-asked-text ${whole.value ? "" : "ak-clamped"}`} dir="auto" ref={body}>
        {askedText(entry.prompt) || <span class="ak-quiet">{trans.__("Asked elsewhere")}</span>}
      </div>
      {entry.media && entry.media.length > 0 && (
        <Gallery media={entry.media} session={entry.view.value.session} alt={trans.__("Attachment")} />
      )}
      {cut.value && (
        <button type="button" class="ak-link" aria-expanded={whole.value} onClick={() => (whole.value = !whole.value)}>
          {whole.value ? trans.__("Show less") : trans.__("Show all of it")}
        </button>
      )}
    </div>
  );
}

function levelWord(level: string): string {
  if (level === "warning") return trans.__("Note:");
  return level === "error" ? trans.__("Problem:") : "";
}

/** A notice in one line, with its details folded below it. Its level is in a word, not only in its colour. */
function Notice({ block: { level, text, details } }: { block: NoticeBlock }) {
  const weight = levelWord(level);
  const words = (
    <span>
      {weight && `${weight} `}
      {serverText(text)}
    </span>
  );
  if (details) {
    return (
      <details class="ak-notice-details">
        <summary>{words}</summary>
        <pre>{markInvisible(details)}</pre>
      </details>
    );
  }
  return (
    <p class={`ak-notice ${weight ? "ak-notice-strong" : ""}`}>
      <Icon name={weight ? "warning" : "info"} />
      {words}
    </p>
  );
}

/** The reasoning of a model as one line, which opens to the text. */
function Reasoning({ block }: { block: TextBlock }) {
  const open = useSignal(false);
  const took = formatDuration(block.ended - block.began);
  return (
    <div>
      <button type="button" class="ak-row" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
        <Icon name="reasoning" />
        <span class="ak-verb">{block.done ? trans.__("Reasoning") : trans.__("Reasoning...")}</span>
        <span class="ak-outcome">{block.done ? took : <Elapsed since={block.began} />}</span>
      </button>
      {open.value && (
        <div class="ak-inside">
          <Markdown text={block.text} done={block.done} />
        </div>
      )}
    </div>
  );
}

/** Why a turn ended without an answer, and what the user can do. */
function UnfinishedTurn({ entry, turn }: { entry: Entry; turn: TurnView }) {
  const { conversation } = usePanel();
  if (turn.state === "open" || turn.state === "committed") return null;
  const details = Object.entries(turn.error?.details ?? {});
  return (
    <div class="ak-ended">
      <p>
        <Icon name={turn.state === "cancelled" ? "info" : "warning"} />
        <span>
          {endOf(turn)} {serverText(turn.error?.hint ?? "")}
        </span>
      </p>
      {details.length > 0 && (
        <details>
          <summary>{trans.__("Details")}</summary>
          <Source
            code={details.map(([name, value]) => `${name}: ${JSON.stringify(value)}`).join("\n")}
            language=""
            label={trans.__("Details")}
          />
        </details>
      )}
      {turn.state !== "cancelled" && (
        <button type="button" onClick={() => void conversation.retry(entry)}>
          {trans.__("Try again")}
        </button>
      )}
    </div>
  );
}

/** What a turn waits for before its next text, and which parts of the conversation the model does not see. */
function WaitingLine({ turn }: { turn: TurnView }) {
  if (turn.state !== "open") return null;
  const left = describeLeftOut(turn);
  const quiet = !turn.waiting && turn.blocks.some((block) => block.kind !== "notice");
  return (
    <>
      {left && <p class="ak-quiet">{left}</p>}
      {!quiet && (
        <div class="ak-waiting">
          <span class="ak-dots" aria-hidden="true" />
          <span>{waitingLineText(turn)}</span>
          {turn.loading !== null && (
            <progress max={1} value={turn.loading} aria-label={waitingText(turn.waiting)}>
              {Math.round(turn.loading * 100)} %
            </progress>
          )}
        </div>
      )}
    </>
  );
}

function waitingLineText({ waiting: why, place, loading, began }: TurnView): string {
  const waiting = waitingText(why);
  if (place > 0)
    return place === 1
      ? trans.__("In the queue: next (%1)", waiting)
      : trans._n("In the queue: %1 turn before it (%2)", "In the queue: %1 turns before it (%2)", place, waiting);
  if (waiting) return loading === null ? waiting : `${waiting}, ${Math.round(loading * 100)} %`;
  return began > 0 ? trans.__("Thinking") : trans.__("Sending");
}

/** A sentence about earlier messages that were left out or shortened; empty if none were. */
function describeLeftOut({ context }: TurnView): string {
  if (!context || (context.dropped === 0 && context.shortened === 0)) return "";
  const parts = [
    context.dropped > 0 &&
      trans._n(
        "%1 earlier message did not fit and is left out",
        "%1 earlier messages did not fit and are left out",
        context.dropped,
      ),
    context.dropped > 0 && context.summary && trans.__("a summary replaces them"),
    context.shortened > 0 &&
      trans._n("%1 long result is shortened", "%1 long results are shortened", context.shortened),
  ];
  return `${parts.filter((part) => part !== false).join("; ")}.`;
}
