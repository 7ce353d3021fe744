/** An answer that consists of the rows of an output. If a table above it has all their words, the answer points there
 * instead. */
import type { ComponentChildren } from "preact";
import { splitWords, useTableWords } from "../media/tableWords";
import { trans } from "../translation/translation";
import type { RowsBlock } from "../turn/groups";

/** What pandas writes at the end of a line whose columns continue below. */
const CONTINUES = "\\";

interface Shown {
  block: RowsBlock;
  session: string;
  /** The answer as it is shown if it does not repeat a table. */
  children: ComponentChildren;
}

/** Until the tables are loaded, the answer is expected to repeat them. */
export function RowsAnswer({ block, session, children }: Shown) {
  const words = useTableWords(block.tables, session);
  const known = (word: string) => words?.has(word) === true || word === CONTINUES;
  if (words && !splitWords(block.rows).every(known)) return <>{children}</>;
  return <p class="ak-quiet">{trans.__("The result is the table above.")}</p>;
}
