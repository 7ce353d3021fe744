/** What a turn waits for before its next text, and which parts of the conversation the model does not see. */
import type { TurnView } from "../turn/turn";
import { pluralize } from "../turn/labels";

export function WaitingLine({ turn }: { turn: TurnView }) {
  if (turn.state !== "open") return null;
  const left = leftOut(turn);
  const quiet = !turn.waiting && turn.blocks.length > 0;
  return (
    <>
      {left && <p class="ak-quiet">{left}</p>}
      {!quiet && (
        <div class="ak-waiting">
          <span class="ak-dots" aria-hidden="true" />
          <span>{words(turn)}</span>
          {turn.loading !== null && (
            <progress max={1} value={turn.loading} aria-label={turn.waiting}>
              {Math.round(turn.loading * 100)} %
            </progress>
          )}
        </div>
      )}
    </>
  );
}

function words({ waiting, place, loading, began }: TurnView): string {
  if (place > 0) return `In the queue: ${place === 1 ? "next" : `${pluralize(place, "turn")} before it`} (${waiting})`;
  if (waiting) return loading === null ? waiting : `${waiting}, ${Math.round(loading * 100)} %`;
  return began > 0 ? "Thinking" : "Sending";
}

/** A sentence about earlier messages that were left out or shortened; empty if none were. */
export function leftOut({ context }: TurnView): string {
  if (!context || (context.dropped === 0 && context.shortened === 0)) return "";
  const parts = [
    context.dropped > 0 &&
      `${pluralize(context.dropped, "earlier message")} did not fit and ${be(context.dropped)} left out`,
    context.dropped > 0 && context.summary && "a summary stands for them",
    context.shortened > 0 && `${pluralize(context.shortened, "long result")} ${be(context.shortened)} shortened`,
  ];
  return `${parts.filter((part) => part !== false).join("; ")}.`;
}

const be = (count: number) => (count === 1 ? "is" : "are");
