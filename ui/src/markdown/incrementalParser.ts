/** Parses a growing text into top-level blocks. A block that is followed by another one can no longer change: it keeps
 * its identity and is not parsed again, so that an update costs only as much as parsing the last block. */
import { completeMarkup } from "./completeMarkup";
import { parseBlocks, type References } from "./parser";

export interface Piece {
  /** Number of the block in the text, from 0. */
  key: number;
  source: string;
  /** Whether this is the end of a text that still grows. */
  open: boolean;
}

const NONE: References = {};

export class Document {
  #text = "";
  #settled: Piece[] = [];
  #settledAt = 0;
  #defined: References = {};
  #references: References = NONE;

  /** Definitions for links of the form `[text][name]`. Returns the same object as long as the definitions do not
   * change. */
  get references(): References {
    return this.#references;
  }

  /** Parse the next state of the text and return its blocks. A text that does not continue the previous one is parsed
   * from the start. */
  update(given: string, done: boolean): readonly Piece[] {
    const text = given.includes("\r") ? given.replace(/\r\n?/g, "\n") : given;
    if (!text.startsWith(this.#text)) this.#restart();
    this.#text = text;
    const tail = text.slice(this.#settledAt);
    const defined = { ...this.#defined };
    const cuts = blockOffsets(tail, parseBlocks(tail, defined, !done));
    this.#adopt(defined);
    const sources = cuts.map((cut, index) => tail.slice(index ? cut : 0, cuts[index + 1]));
    const final = done ? sources.length : this.#final(sources);
    for (const source of sources.slice(0, final)) this.#settle(source);
    return [...this.#settled, ...this.#growing(sources.slice(final), done)];
  }

  /** Number of blocks that can no longer change. The last block is not among them, nor the one before it if the last
   * line is unfinished (three backticks may turn out to be inline code). */
  #final(sources: readonly string[]): number {
    const whole = sources.at(-1)?.includes("\n") ?? false;
    return Math.max(0, sources.length - (whole ? 1 : 2));
  }

  #settle(source: string): void {
    this.#settled.push({ key: this.#settled.length, source: own(source), open: false });
    this.#settledAt += source.length;
    if (source.includes("]:")) parseBlocks(source, this.#defined, false);
  }

  #growing(sources: readonly string[], done: boolean): Piece[] {
    return sources
      .map((source, index) => {
        const open = !done && index === sources.length - 1;
        return { key: this.#settled.length + index, source: open ? completeMarkup(source) : source, open };
      })
      .filter((piece) => piece.source);
  }

  #adopt(defined: References): void {
    if (Object.keys(defined).length === 0 || JSON.stringify(defined) === JSON.stringify(this.#references)) return;
    this.#references = defined;
  }

  #restart(): void {
    this.#settled = [];
    this.#settledAt = 0;
    this.#defined = {};
    this.#references = NONE;
  }
}

/** A copy of a substring. In current browsers a substring keeps the whole text in memory. */
const own = (part: string): string => ` ${part}`.slice(1);

/** Offsets at which top-level blocks start. */
function blockOffsets(source: string, tokens: ReturnType<typeof parseBlocks>): number[] {
  const found: number[] = [];
  let line = 0;
  let offset = 0;
  for (const token of tokens) {
    if (token.level !== 0 || token.nesting < 0 || !token.map) continue;
    for (; line < token.map[0]; line++) offset = source.indexOf("\n", offset) + 1;
    found.push(offset);
  }
  return found;
}
