/** Tables that arrive as rows of values, from the sandbox. */
import { trans } from "../translation/translation";
import { type Cell, type Column, type Grid, type Kind, parseNumber, readTexts } from "./grid";

export interface Rows {
  columns: { name: string; type: string }[];
  index: unknown[];
  rows: unknown[][];
  shape: number[];
}

/** Significant digits that are shown. Further digits are rounding errors of binary fractions. */
const DIGITS = 7;
const MAX_DECIMALS = 6;
const NUMERIC_TYPE = /^(?:u?int|float|decimal)/i;
const FRACTION_TYPE = /^(?:float|decimal)/i;
const MIDNIGHT = / 00:00:00$/;

export function isRows(value: unknown): value is Rows {
  if (typeof value !== "object" || value === null) return false;
  const { columns, index, rows, shape } = value as Partial<Rows>;
  if (![columns, index, rows, shape].every(Array.isArray)) return false;
  return (
    (columns ?? []).every((column: unknown) => typeof column === "object" && column !== null) &&
    (rows ?? []).every(Array.isArray) &&
    (shape ?? []).every((length: unknown) => typeof length === "number")
  );
}

export function gridOfRows({ columns, index, rows, shape }: Rows): Grid {
  // Only pandas has row labels; it writes missing values as NaN and NaT. The other libraries write null.
  const [none, noTime] = index.length > 0 ? ["NaN", "NaT"] : ["null", "null"];
  const column = (name: string, type: string, isLabel: boolean, values: readonly unknown[]): [Column, Cell[]] => {
    const [kind, cells] = readValues(values, type);
    const text = kind === "date" ? noTime : none;
    return [{ name, type, kind, isLabel }, cells.map((cell) => (cell.missing ? { ...cell, text } : cell))];
  };
  const all = columns.map(({ name, type }, place) =>
    column(
      toText(name),
      toText(type),
      false,
      rows.map((row) => row[place]),
    ),
  );
  const labels = rows.map((_, row) => index[row]);
  if (index.length > 0) all.unshift(column("", "", true, labels));
  const [height = rows.length, width = columns.length] = shape;
  return {
    columns: all.map(([head]) => head),
    rows: rows.map((_, row) => all.flatMap(([, cells]) => cells[row] ?? [])),
    height: Math.max(height, rows.length),
    width: Math.max(width, columns.length),
    head: rows.length,
  };
}

const isMissing = (value: unknown): boolean => value === null || value === undefined;

function readValues(values: readonly unknown[], type: string): [Kind, Cell[]] {
  const there = values.filter((value) => !isMissing(value));
  if (there.length > 0 && (NUMERIC_TYPE.test(type) || there.every((value) => typeof value === "number"))) {
    return ["number", readNumbers(values, numberWriter(there, FRACTION_TYPE.test(type)))];
  }
  const [kind, cells] = readTexts(values.map(toText), values.map(isMissing));
  if (kind !== "date") return ["text", cells]; // digits in a column of texts stay text
  const isDay = cells.every((cell) => cell.missing || MIDNIGHT.test(cell.text));
  return ["date", isDay ? cells.map((cell) => ({ ...cell, text: cell.text.replace(MIDNIGHT, "") })) : cells];
}

/** The cells of a column of numbers. A number that JSON cannot represent, such as infinity, and a very large number
 * arrive as text. */
const readNumbers = (values: readonly unknown[], write: (value: number) => string): Cell[] =>
  values.map((value) => {
    if (typeof value === "number") return { text: write(value), value, missing: false };
    return { text: toText(value), value: parseNumber(toText(value)), missing: isMissing(value) };
  });

/** Returns a function that writes the numbers of a column. All have the same number of decimals, unless very small or
 * very large numbers are among them; then each is written with up to DIGITS digits. */
function numberWriter(values: readonly unknown[], isFraction: boolean): (value: number) => string {
  const numbers = values.filter((value) => typeof value === "number");
  const short = (value: number): string => String(Number(value.toPrecision(DIGITS)));
  if (numbers.every((value) => Number.isSafeInteger(value)) && !isFraction) return String;
  const sizes = numbers.filter((value) => value !== 0).map(Math.abs);
  if (sizes.some((size) => size < 1e-4 || size >= 1e9)) return short;
  const decimals = numbers.map((value) => short(value).split(".")[1]?.length ?? 0);
  const most = Math.min(MAX_DECIMALS, Math.max(1, ...decimals));
  return (value) => value.toFixed(most);
}

function toText(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value;
  if (typeof value === "boolean") return value ? "True" : "False";
  try {
    return JSON.stringify(value);
  } catch {
    return trans.__("(nested too deeply to show)"); // unlike parsing, writing is recursive and may overflow the stack
  }
}
