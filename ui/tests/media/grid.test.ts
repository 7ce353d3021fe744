import { expect, test } from "vitest";
import { type Grid, nextSorting, parseDate, parseNumber, readTexts, sortRows } from "../../src/media/grid";

/** A table of one column. */
function gridOf(...texts: string[]): Grid {
  const [kind, cells] = readTexts(
    texts,
    texts.map((text) => text === "NaN"),
  );
  return {
    columns: [{ name: "a", type: "", kind, isLabel: false }],
    rows: cells.map((cell) => [cell]),
    height: texts.length,
    width: 1,
    head: texts.length,
  };
}

function sorted(descending: boolean, ...texts: string[]): string[] {
  return sortRows(gridOf(...texts), { column: 0, descending }).map((row) => texts[row] ?? "");
}

test.each([
  ["12", 12],
  ["-1,234,567.50", -1_234_567.5],
  ["1e-05", 0.00001],
  [".5", 0.5],
  ["12.5%", 12.5],
  ["-inf", -Infinity],
])("%s is the number %d", (text, number) => {
  expect(parseNumber(text)).toBe(number);
});

test.each(["007", "1,23", "12 km", "1.2.3", "2024-05-01", "", "-", "e5", "0x10"])("%s is no number", (text) => {
  expect(parseNumber(text)).toBeNaN();
});

test("a date is read as Python writes it, in its own time zone", () => {
  expect(parseDate("2024-05-01")).toBe(Date.UTC(2024, 4, 1));
  expect(parseDate("2024-05-01 12:30:00.250")).toBe(Date.UTC(2024, 4, 1, 12, 30, 0, 250));
  expect(parseDate("2024-05-01 12:30:00+02:00")).toBe(Date.UTC(2024, 4, 1, 10, 30));
  expect(parseDate("2024-05-01T12:30+0200")).toBe(Date.UTC(2024, 4, 1, 10, 30));
  expect(parseDate("1 May 2024")).toBeNaN();
  expect(parseDate("2024-05")).toBeNaN();
});

test("numbers are sorted as numbers", () => {
  expect(sorted(false, "10", "9", "-1", "1e3", "inf", "-inf")).toEqual(["-inf", "-1", "9", "10", "1e3", "inf"]);
  expect(sorted(true, "10", "9", "1,000")).toEqual(["1,000", "10", "9"]);
});

test("dates are sorted by time, whatever their time zones", () => {
  const [early, late] = ["2024-05-01 09:00:00+02:00", "2024-05-01 08:00:00+00:00"];
  expect(sorted(false, late, early)).toEqual([early, late]);
});

test("text is sorted as people read it, with the numbers in it", () => {
  expect(sorted(false, "day 10", "Day 9", "day 1")).toEqual(["day 1", "Day 9", "day 10"]);
  expect(sorted(false, "b", "12", "a")).toEqual(["12", "a", "b"]);
});

test("missing values are last in both directions", () => {
  expect(sorted(false, "NaN", "2", "NaN", "1")).toEqual(["1", "2", "NaN", "NaN"]);
  expect(sorted(true, "NaN", "2", "NaN", "1")).toEqual(["2", "1", "NaN", "NaN"]);
});

test("equal rows stay in the order in which they arrived", () => {
  const grid = gridOf("1", "0", "1", "0", "NaN", "NaN");
  expect(sortRows(grid, { column: 0, descending: true })).toEqual([0, 2, 1, 3, 4, 5]);
  expect(sortRows(grid, { column: 0, descending: false })).toEqual([1, 3, 0, 2, 4, 5]);
});

test("the third press on a column restores the order, and another column begins anew", () => {
  const once = nextSorting(null, 1);
  expect(once).toEqual({ column: 1, descending: false });
  const twice = nextSorting(once, 1);
  expect(twice).toEqual({ column: 1, descending: true });
  expect(nextSorting(twice, 1)).toBeNull();
  expect(nextSorting(twice, 0)).toEqual({ column: 0, descending: false });
  expect(sortRows(gridOf("2", "1"), null)).toEqual([0, 1]);
});
