/** An answer that consists of the rows of an output. If a table above it has all these rows, the answer points there
 * instead. */
import type { ComponentChildren } from "preact";
import { normalizeRow, useTableRows } from "../media/tableRows";
import { trans } from "../translation/translation";
import type { RowsBlock } from "../turn/groups";

/** A line that stands for rows that pandas leaves out. */
const LEFT_OUT = /^[.\s]*$/;

interface Shown {
  block: RowsBlock;
  session: string;
  /** The answer as it is shown if it does not repeat a table. */
  children: ComponentChildren;
}

/** Until the tables are loaded, the answer is expected to repeat them. */
export function RowsAnswer({ block, session, children }: Shown) {
  const rows = useTableRows(block.tables, session);
  if (rows && !block.rows.split("\n").every((line) => isRowOf(rows, line))) return <>{children}</>;
  return <p class="ak-quiet">{trans.__("The result is the table above.")}</p>;
}

/** Whether `rows` has the row of this line of text, whose first word may be a row number that the table does not show. */
function isRowOf(rows: ReadonlySet<string>, line: string): boolean {
  const row = normalizeRow(line);
  return LEFT_OUT.test(row) || rows.has(row) || rows.has(row.replace(/^\d+ /, ""));
}
