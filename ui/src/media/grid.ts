/** A table as values, in whatever form it arrived: columns, cells of plain text, and how many rows the whole table has.
 * Sorts it. */

/** How the values of a column are compared and aligned. A column of the kind "gap" stands for columns that did not
 * arrive. */
export type Kind = "number" | "date" | "text" | "gap";

export interface Cell {
  text: string;
  /** The value by which rows are sorted in a column of numbers or dates; NaN for a text or a missing value. */
  value: number;
  missing: boolean;
}

export interface Column {
  /** Empty for a column of row labels that has no name. */
  name: string;
  type: string;
  kind: Kind;
  /** Whether the column contains the labels of the rows. */
  isLabel: boolean;
}

export interface Grid {
  columns: readonly Column[];
  rows: readonly (readonly Cell[])[];
  /** Number of rows of the whole table; `width` is its number of columns, without row labels. They are larger than the
   * numbers of rows and columns here if the table was cut. */
  height: number;
  width: number;
  /** Number of rows before the place where rows did not arrive; the number of all rows here if there is no such
   * place. */
  head: number;
}

export interface Sorting {
  column: number;
  descending: boolean;
}

export const PAGE_ROWS = 20;

const NUMBER = /^[-+−]?(?:(?:0|[1-9]\d*|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?\s?%?$/i;
const INFINITE = /^[-+]?inf(?:inity)?$/i;
const DATE = /^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d(?::\d\d(?:\.\d+)?)?)\s?(Z|UTC|[-+]\d\d:?\d\d)?)?$/;
/** Compares numbers in texts by their value: "2 days" comes before "10 days". */
const TEXTS = new Intl.Collator(undefined, { numeric: true });

/** The number that a text represents; NaN if it is no number. Digits with a leading zero are a code, such as a postal
 * code. */
export function parseNumber(text: string): number {
  if (INFINITE.test(text)) return text.startsWith("-") ? -Infinity : Infinity;
  return NUMBER.test(text) ? Number(text.replaceAll(",", "").replace("−", "-").replace(/\s?%$/, "")) : NaN;
}

/** The time of a date as Python writes it, in milliseconds since the epoch; NaN if the text is no date. */
export function parseDate(text: string): number {
  const [, day = "", time = "00:00", zone = "Z"] = DATE.exec(text) ?? [];
  return day ? Date.parse(`${day}T${time}${zone === "UTC" ? "Z" : zone.replace(/(\d\d)(\d\d)$/, "$1:$2")}`) : NaN;
}

/** The kind of a column of texts, and its cells with the values by which they are sorted. `missing` marks the rows
 * without a value. */
export function readTexts(texts: readonly string[], missing: readonly boolean[]): [Kind, Cell[]] {
  const read = (parse: (text: string) => number): Cell[] =>
    texts.map((text, row) => {
      const isMissing = missing[row] ?? false;
      return { text, missing: isMissing, value: isMissing ? NaN : parse(text) };
    });
  for (const [kind, parse] of [["number", parseNumber] as const, ["date", parseDate] as const]) {
    const cells = read(parse);
    const there = cells.filter((cell) => !cell.missing);
    if (there.length > 0 && there.every((cell) => !Number.isNaN(cell.value))) return [kind, cells];
  }
  return ["text", read(() => NaN)];
}

/** The indices of the rows in sorted order. Missing values come last in both directions, and equal rows keep their
 * order. */
export function sortRows(grid: Grid, sorting: Sorting | null): number[] {
  const order = grid.rows.map((_, number) => number);
  if (!sorting) return order;
  const { column, descending } = sorting;
  const byText = grid.columns[column]?.kind === "text";
  const cell = (row: number): Cell | undefined => grid.rows[row]?.[column];
  return order.sort((one, other) => {
    const [a, b] = [cell(one), cell(other)];
    if (!a || !b || a.missing || b.missing) return Number(a?.missing ?? true) - Number(b?.missing ?? true);
    const compared = byText ? TEXTS.compare(a.text, b.text) : compareNumbers(a.value, b.value);
    return descending ? -compared : compared;
  });
}

/** Comparing by subtraction would fail: the difference of two infinities is NaN. */
const compareNumbers = (a: number, b: number): number => (a < b ? -1 : a > b ? 1 : 0);

/** The sorting after the user presses the header of a column: first ascending, then descending, then in the order in
 * which the rows arrived (null). */
export function nextSorting(now: Sorting | null, column: number): Sorting | null {
  if (now?.column !== column) return { column, descending: false };
  return now.descending ? null : { column, descending: true };
}

export const countPages = (rows: number): number => Math.max(1, Math.ceil(rows / PAGE_ROWS));
