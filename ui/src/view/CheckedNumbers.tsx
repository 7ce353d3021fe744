/** Marks the numbers of an answer: a number that was computed links to its line of output, other numbers are marked as
 * not computed. Numbers are matched by spelling, so all numbers of an answer with the same spelling have the same
 * source. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { WordsContext } from "../markdown/Markdown";
import type { CheckedNumber } from "../wire/events";
import "./numbers.css";
import { revealCall } from "./revealedCall";
import { trans } from "../translation/translation";

/** Patterns for what may stand before and behind a number. They exclude parts of names and of longer numbers. */
const BEFORE = "(?<![\\p{Script=Latin}\\p{Script=Greek}\\p{Script=Cyrillic}\\p{N}_]|\\p{N}[.,])";
const BEHIND = "(?![\\p{N}_]|[.,]\\p{N})";

interface Checked {
  numbers: readonly CheckedNumber[];
  children: ComponentChildren;
}

export function CheckedNumbers({ numbers, children }: Checked) {
  const words = useMemo(() => markNumbers(numbers), [numbers]);
  return <WordsContext.Provider value={words}>{children}</WordsContext.Provider>;
}

/** Returns a function that marks the numbers in running text; text without numbers is returned unchanged. */
function markNumbers(numbers: readonly CheckedNumber[]): (text: string) => ComponentChildren {
  const known = new Map<string, CheckedNumber>();
  for (const number of numbers) {
    if (number.status !== "given" && !known.has(number.text)) known.set(number.text, number);
  }
  if (known.size === 0) return (text) => text;
  const spellings = [...known.keys()].sort((one, other) => other.length - one.length).map(escaped);
  const pattern = new RegExp(`${BEFORE}(?:${spellings.join("|")})${BEHIND}`, "gu");
  return (text) => {
    const parts: ComponentChildren[] = [];
    let end = 0;
    for (const match of text.matchAll(pattern)) {
      const number = known.get(match[0]);
      if (!number) continue;
      parts.push(text.slice(end, match.index), <Marked key={match.index} number={number} />);
      end = match.index + match[0].length;
    }
    return end === 0 ? text : [...parts, text.slice(end)];
  };
}

function Marked({ number: { text, status, call, line, shown } }: { number: CheckedNumber }) {
  if (status === "open" || !call) {
    return (
      <span class="ak-number-open" title={trans.__("not computed")}>
        {text}
        <span class="ak-unseen"> {trans.__("(not computed)")}</span>
      </span>
    );
  }
  const place =
    status === "code" ? trans.__("in the code, in no output") : trans.__("computed, line %1 of the output", line ?? 1);
  return (
    <button
      type="button"
      class={status === "code" ? "ak-number ak-number-code" : "ak-number"}
      title={shown ? `${place}: ${shown}` : place}
      onClick={() => revealCall(call, status === "code" ? 0 : line)}
    >
      {text}
    </button>
  );
}

const escaped = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
