/** The output of a program, with terminal colours. Of long output the end is shown first. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { plainText, parseTerminalOutput } from "../turn/terminalOutput";
import { formatNumber, trans } from "../translation/translation";

const SHOWN = 20_000;

interface Shown {
  text: string;
  /** Number of characters before `text` that were dropped. */
  cut?: number;
  label: string;
  /** The line to highlight, from 1; 0 for none. */
  line?: number;
}

export function Output({ text, cut = 0, label, line = 0 }: Shown) {
  const all = useSignal(false);
  const place = useRef<HTMLElement>(null);
  const long = text.length > SHOWN && !all.value && line === 0;
  const shown = long ? text.slice(-SHOWN) : text;
  const pieces = useMemo(() => parseTerminalOutput(shown), [shown]);
  useEffect(() => place.current?.scrollIntoView({ block: "nearest" }), [line]);
  return (
    <div class="ak-output">
      {long && (
        <button type="button" class="ak-link" onClick={() => (all.value = true)}>
          {trans.__("Show %1 earlier characters", formatNumber(text.length - SHOWN))}
        </button>
      )}
      {!long && cut > 0 && <p class="ak-quiet">{trans.__("%1 earlier characters were dropped.", formatNumber(cut))}</p>}
      <pre role="group" tabIndex={0} aria-label={label}>
        {line > 0 ? (
          <Lines text={shown} line={line} place={place} />
        ) : (
          pieces.map(({ text: piece, colour, bold }) =>
            colour || bold ? <span class={`ak-${colour || "plain"} ${bold ? "ak-bold" : ""}`}>{piece}</span> : piece,
          )
        )}
      </pre>
    </div>
  );
}

/** The output without colours, with one line highlighted: among colours the line would not stand out. */
function Lines({ text, line, place }: { text: string; line: number; place: { current: HTMLElement | null } }) {
  const lines = plainText(text).split("\n");
  return (
    <>
      {lines
        .slice(0, line - 1)
        .map((one) => `${one}\n`)
        .join("")}
      <mark class="ak-flash" ref={place} tabIndex={-1}>
        {lines[line - 1] ?? ""}
      </mark>
      {`\n${lines.slice(line).join("\n")}`}
    </>
  );
}
