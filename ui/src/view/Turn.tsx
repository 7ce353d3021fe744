/** A prompt and its answer. A complete block is rendered once and left alone as long as it is the same object. */
import { useMemo } from "preact/hooks";
import type { Entry } from "../conversation/conversation";
import { Markdown } from "../markdown/Markdown";
import { askedText } from "../turn/askedText";
import { groupBlocks, type Line } from "../turn/groups";
import { hasOpenApproval, type TextBlock } from "../turn/turn";
import type { CheckedNumber } from "../wire/events";
import { Call } from "./Call";
import { UnfinishedTurn } from "./UnfinishedTurn";
import { Files } from "./Files";
import { TurnFooter } from "./TurnFooter";
import { ErrorBoundary } from "./ErrorBoundary";
import { Notice } from "./Notice";
import { CheckedNumbers } from "./CheckedNumbers";
import { Prompt } from "./Prompt";
import { Proposal } from "./Proposal";
import { CallGroup } from "./CallGroup";
import { Reasoning } from "./Reasoning";
import { ReviewTurn } from "./Review";
import { RowsAnswer } from "./RowsAnswer";
import { usePanel } from "../conversation/panelContext";
import { describeLeftOut, WaitingLine } from "./WaitingLine";
import { trans } from "../translation/translation";

export function Turn({ entry }: { entry: Entry }) {
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

/** Shown at the newest turn of a cell that asks a question which can only be answered there, such as whether to keep a
 * result. */
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
