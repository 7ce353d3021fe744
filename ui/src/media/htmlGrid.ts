/** Reads the table that pandas and polars write as HTML. Only the text of its cells is used. */
import { sanitise } from "../markdown/sanitise";
import { type Cell, type Column, type Grid, readTexts } from "./grid";

const MAX_CELLS = 200_000;
const PANDAS_SHAPE = /^([\d,]+) rows × ([\d,]+) columns?$/;
const POLARS_SHAPE = /^shape: \(([\d_,]+), ([\d_,]+)\)$/;
const LEFT_OUT = /^(?:\.\.\.|…|⋮)$/;
const MISSING = new Set(["", "NaN", "nan", "NaT", "None", "<NA>", "null"]);

interface Spread {
  texts: string[][];
  /** Whether the cell at the same place in `texts` is a header cell. */
  heads: boolean[][];
}

/** The table as a grid. Null unless the HTML is exactly one table with a head and rows of the same length: other HTML
 * may contain text outside of the cells, or a table of another shape. */
export function parseHtmlTable(html: string): Grid | null {
  const content = sanitise(html, "table");
  const [table, ...others] = content.querySelectorAll("table");
  if (!table || others.length > 0 || table.caption) return null;
  table.remove();
  const shape = readShape(content.textContent.trim());
  if (!shape) return null;
  for (const end of table.querySelectorAll("br")) end.replaceWith(" ");
  const head = spread(rowsIn(table, "thead"));
  const body = spread(rowsIn(table, "tbody"));
  if (!head || !body || head.texts.length === 0 || rowsIn(table, "tfoot").length > 0) return null;
  return isEven([...head.texts, ...body.texts]) ? gridOf(head, body, shape) : null;
}

const rowsIn = (table: HTMLTableElement, part: string): HTMLTableRowElement[] => [
  ...table.querySelectorAll<HTMLTableRowElement>(`:scope > ${part} > tr`),
];

/** Read the text beside a table, which is empty or states the numbers of rows and columns. Null for any other text. */
function readShape(text: string): { height: number; width: number } | null {
  if (!text) return { height: 0, width: 0 };
  const [, height, width] = PANDAS_SHAPE.exec(text) ?? POLARS_SHAPE.exec(text) ?? [];
  if (!height || !width) return null;
  return { height: Number(height.replace(/\D/g, "")), width: Number(width.replace(/\D/g, "")) };
}

/** The texts of the rows, with a cell that spans several rows or columns repeated in each of them. Null if that makes
 * more than MAX_CELLS cells. */
function spread(rows: readonly HTMLTableRowElement[]): Spread | null {
  const texts: string[][] = rows.map(() => []);
  const heads: boolean[][] = rows.map(() => []);
  let made = 0;
  for (const [top, row] of rows.entries()) {
    let left = 0;
    for (const cell of row.cells) {
      while (texts[top]?.[left] !== undefined) left++;
      const text = cell.textContent.trim();
      const bottom = cell.rowSpan === 0 ? rows.length : Math.min(rows.length, top + cell.rowSpan);
      made += (bottom - top) * cell.colSpan;
      if (made > MAX_CELLS) return null;
      for (let y = top; y < bottom; y++) {
        for (let x = left; x < left + cell.colSpan; x++) {
          (texts[y] ??= [])[x] = text;
          (heads[y] ??= [])[x] = cell.tagName === "TH";
        }
      }
    }
  }
  return { texts, heads };
}

function isEven(rows: readonly string[][]): boolean {
  const width = rows[0]?.length ?? 0;
  return width > 0 && rows.every((row) => row.length === width && !row.includes(undefined as unknown as string));
}

function gridOf(head: Spread, body: Spread, shape: { height: number; width: number }): Grid {
  const labels = countLabels(head, body);
  const rows = body.texts;
  const isCut = shape.height > rows.length - 1;
  const gap = isCut ? rows.findIndex((row) => row.every((text) => LEFT_OUT.test(text))) : -1;
  const kept = gap < 0 ? rows : rows.toSpliced(gap, 1);
  const read = namesOf(head, labels).map(({ name, type }, place): [Column, Cell[]] => {
    const texts = kept.map((row) => row[place] ?? "");
    if (place >= labels && LEFT_OUT.test(name) && texts.every((text) => LEFT_OUT.test(text))) {
      return [{ name, type, kind: "gap", isLabel: false }, texts.map((text) => ({ text, value: NaN, missing: true }))];
    }
    const [kind, cells] = readTexts(
      texts,
      texts.map((text) => MISSING.has(text)),
    );
    return [{ name, type, kind, isLabel: place < labels }, cells];
  });
  const values = read.filter(([column]) => !column.isLabel && column.kind !== "gap").length;
  return {
    columns: read.map(([column]) => column),
    rows: kept.map((_, row) => read.flatMap(([, cells]) => cells[row] ?? [])),
    height: Math.max(shape.height, kept.length),
    width: Math.max(shape.width, values),
    head: gap < 0 ? kept.length : gap,
  };
}

/** The number of columns at the left that have row labels: all their cells are header cells. In a table without rows,
 * the first column has row labels if it has no name. */
function countLabels({ texts }: Spread, { heads }: Spread): number {
  const width = texts[0]?.length ?? 0;
  if (heads.length === 0) return width > 1 && texts[0]?.[0] === "" ? 1 : 0;
  let labels = 0;
  while (labels < width && heads.every((row) => row[labels])) labels++;
  return labels < width ? labels : 0;
}

/** Names and types of the columns. pandas may write the names of the labels in a row of their own below the others,
 * polars writes the types there. */
function namesOf({ texts, heads }: Spread, labels: number): { name: string; type: string }[] {
  const last = texts.length > 1 ? (texts.at(-1) ?? []) : [];
  const hasTypes = last.length > 0 && labels === 0 && heads.at(-1)?.every((isHead) => !isHead) === true;
  const hasLabels = last.length > 0 && labels > 0 && last.slice(labels).every((text) => text === "");
  const levels = hasTypes || hasLabels ? texts.slice(0, -1) : texts;
  return (texts[0] ?? []).map((_, place) => {
    if (place < labels)
      return { name: (hasLabels ? last[place] : levels.length === 1 && levels[0]?.[place]) || "", type: "" };
    const names = levels.map((level) => level[place] ?? "").filter((name) => name !== "");
    return { name: names.join(" / "), type: hasTypes ? (last[place] ?? "") : "" };
  });
}
