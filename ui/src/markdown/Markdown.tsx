/** Text of a model or a person, as Markdown. `done`: it does not grow any more; until then it is shown at most as often
 * as the page keeps up with. */
import { Component, createContext } from "preact";
import { useMemo, useState } from "preact/hooks";
import { Document, type Piece } from "./document";
import { elements, type Words } from "./elements";
import "./markdown.css";
import { parse, type References } from "./parser";
import { useSteady } from "./useSteady";

const FIRST = 200_000;
/** A paragraph is not longer; what is, has no marks worth looking for. */
const MAX_PIECE = 30_000;
const FENCED = /^ {0,3}(?:`{3}|~{3})/;

/** How running text is shown, for all Markdown below. */
export const WordsContext = createContext<Words | null>(null);

export function Markdown({ text, done }: { text: string; done: boolean }) {
  const [limit, setLimit] = useState(FIRST);
  const shown = useSteady(text, done);
  const whole = shown.length <= limit;
  // What was settled at the limit was cut there, and goes on.
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
          Show more ({Math.ceil((shown.length - limit) / 1_000).toLocaleString()} thousand characters left)
        </button>
      )}
    </div>
  );
}

interface BlockProps {
  piece: Piece;
  references: References;
}

/** Drawn again when its source is another. It is a class since elements that a hook keeps would keep the whole answer
 * as it was when they were made. */
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
