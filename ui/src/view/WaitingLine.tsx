/** What a turn waits for before its next text, and which parts of the conversation the model does not see. */
import { waitingText } from "../turn/serverTexts";
import type { TurnView } from "../turn/turn";
import { trans } from "../translation/translation";

export function WaitingLine({ turn }: { turn: TurnView }) {
  if (turn.state !== "open") return null;
  const left = describeLeftOut(turn);
  const quiet = !turn.waiting && turn.blocks.length > 0;
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
export function describeLeftOut({ context }: TurnView): string {
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
