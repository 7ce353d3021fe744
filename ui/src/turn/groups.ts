/** Groups the blocks of a turn into lines: several read-only calls in a row share one line. An answer that only repeats
 * rows of an output is combined with the tables of earlier calls, so that the panel can refer to them. */
import type { Medium } from "../wire/events";
import type { Block, CallBlock, TextBlock } from "./turn";
import { isReading } from "./labels";
import { formatNumber, trans } from "../translation/translation";

export interface Reading {
  kind: "reading";
  id: string;
  calls: readonly CallBlock[];
}

/** An answer that consists of rows of an output, as a small local model gives it, in a turn with earlier tables. */
export interface RowsBlock {
  kind: "rows";
  id: string;
  text: TextBlock;
  rows: string;
  /** The media of earlier calls of the turn that can be tables. */
  tables: readonly Medium[];
}

const ROWS = /^The result:\n\n((?: {4}[^\n]*(?:\n|$))+)$/;
/** The line that stands for rows that the answer leaves out. */
const MORE = /^ *\.\.\. \d+ more rows$/m;

export type Line = Block | Reading | RowsBlock;

export function groupBlocks(blocks: readonly Block[]): readonly Line[] {
  const shown: Line[] = [];
  let row: CallBlock[] = [];
  const end = () => {
    const [first] = row;
    if (first) shown.push(row.length > 1 ? { kind: "reading", id: `reading-${first.id}`, calls: row } : first);
    row = [];
  };
  for (const block of blocks) {
    if (block.kind === "call" && isReading(block) && block.media.length === 0) {
      row.push(block);
    } else {
      end();
      shown.push(block.kind === "text" ? withTables(block, blocks) : block);
    }
  }
  end();
  return shown;
}

function withTables(text: TextBlock, blocks: readonly Block[]): TextBlock | RowsBlock {
  const rows = text.done ? ROWS.exec(text.text)?.[1] : undefined;
  if (!rows) return text;
  const calls = blocks.slice(0, blocks.indexOf(text)).filter((block) => block.kind === "call");
  const tables = calls.flatMap((call) => call.media).filter((medium) => medium.mime.endsWith("+json"));
  return tables.length > 0 ? { kind: "rows", id: text.id, text, rows: rows.replace(MORE, ""), tables } : text;
}

/** A summary of read-only calls in a row: "Read 5 cells, 2 files, looked at variables". */
export function summary({ calls }: Reading): string {
  const named = (...names: string[]) => calls.filter((call) => names.includes(call.name));
  const cells = named("read_cells").reduce((sum, call) => sum + cellsOf(call), 0);
  const files = named("read_file", "read_skill").length;
  const parts = [
    cells > 0 && trans._n("read %2 cell", "read %2 cells", cells, formatNumber(cells)),
    files > 0 && trans._n("read %1 file", "read %1 files", files),
    named("notebook_cells").length > 0 && trans.__("listed the cells"),
    named("list_files").length > 0 && trans.__("listed the files"),
    named("variables").length > 0 && trans.__("looked at variables"),
    named("last_error").length > 0 && trans.__("read the last error"),
    named("running").length > 0 && trans.__("looked at running code"),
    named("recall").length > 0 && trans.__("searched earlier conversations"),
  ].filter((part) => part !== false);
  const all = parts.join(", ");
  return all.charAt(0).toUpperCase() + all.slice(1);
}

/** Number of cells in "3, 5-8, In[4]"; anything but a number or a range counts as one. */
function cellsOf(call: CallBlock): number {
  const asked = call.arguments["cells"];
  if (typeof asked !== "string") return 1;
  return asked.split(",").reduce((sum, part) => {
    const range = /^\s*(\d+)\s*-\s*(\d+)\s*$/.exec(part);
    const length = range ? Number(range[2]) - Number(range[1]) + 1 : 1;
    return sum + Math.max(1, Math.min(length, 10_000));
  }, 0);
}
