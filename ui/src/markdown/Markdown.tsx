/** Renders Markdown of the model or the user. `done`: the text is complete. A growing text is rendered only as often as
 * the page can handle. */
import { Component, createContext } from "preact";
import { useMemo, useState, useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Document, type Piece } from "./incrementalParser";
import { elements, type Words } from "./elements";
import "./markdown.css";
import { parse, type References } from "./parser";
import { formatNumber, trans } from "../translation/translation";

const EVERY_MS = 50;
/** The pause after a rendering is at least this many times as long as the rendering took. */
const SHARE = 4;

const FIRST = 200_000;
/** Maximum length of a paragraph in characters. Longer ones are shown as plain text: they hold no Markdown worth
 * parsing. */
const MAX_PIECE = 30_000;
const FENCED = /^ {0,3}(?:`{3}|~{3})/;

/** The function that renders running text in every `Markdown` inside this context; null renders it as it is. */
export const WordsContext = createContext<Words | null>(null);

export function Markdown({ text, done }: { text: string; done: boolean }) {
  const [limit, setLimit] = useState(FIRST);
  const shown = useSteady(text, done);
  const whole = shown.length <= limit;
  // A new parser for each limit: the last block was cut at the former limit and counted as complete, but it continues.
  const document = useMemo(() => new Document(), [limit]);
  const pieces = document.update(whole ? shown : shown.slice(0, limit), done || !whole);
  const { references } = document;
  return (
    <div class="ak-markdown">
      {pieces.map((piece) => (
        <Block key={piece.key} piece={piece} references={references} />
      ))}
      {!whole && (
        <button type="button" class="ak-more" onClick={() => setLimit(limit + FIRST)}>
          {trans.__("Show more (%1 thousand characters left)", formatNumber(Math.ceil((shown.length - limit) / 1_000)))}
        </button>
      )}
    </div>
  );
}

interface BlockProps {
  piece: Piece;
  references: References;
}

/** One block of the document, rendered again only when its source changes, or when a link definition that it may use
 * changes. It is a class, because elements memoised by a hook would keep the whole earlier answer in memory. */
class Block extends Component<BlockProps> {
  static override contextType = WordsContext;

  override shouldComponentUpdate({ piece, references }: BlockProps): boolean {
    const { source, open } = this.props.piece;
    if (piece.source !== source || piece.open !== open) return true;
    return references !== this.props.references && source.includes("[");
  }

  override render({ piece: { source, open }, references }: BlockProps) {
    if (source.length > MAX_PIECE && !FENCED.test(source)) return <div class="ak-plain">{source}</div>;
    return <>{elements(parse(source, references, open), this.context as Words | null, open)}</>;
  }
}

/** Returns the part of a growing text that is rendered now, and limits how often that changes, so that most of the time
 * is left to the page. */
function useSteady(text: string, done: boolean): string {
  const [shown, setShown] = useState(text);
  const latest = useRef(text);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const took = useRef(0);
  const began = performance.now();
  latest.current = text;
  useLayoutEffect(() => {
    took.current = performance.now() - began;
  });
  useEffect(() => {
    if (done || text === shown || timer.current !== undefined) return;
    timer.current = setTimeout(
      () => {
        timer.current = undefined;
        setShown(latest.current);
      },
      Math.max(EVERY_MS, SHARE * took.current),
    );
  });
  useEffect(() => () => clearTimeout(timer.current), []);
  return done ? text : shown;
}
