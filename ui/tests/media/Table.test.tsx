import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, test } from "vitest";
import { place } from "../place";
import { isRows, type Rows } from "../../src/media/rows";
import { HtmlTable, RowsTable } from "../../src/media/Table";

const TABLE = { columns: [{ name: "month", type: "str" }], index: [0], rows: [["May"]], shape: [1, 1] };

function show(rows: Rows): void {
  void act(() => render(<RowsTable rows={rows} label="Rain" />, place));
}

/** Rows with the numbers from `count` down to 1. */
const countdown = (count: number, height = count): Rows => ({
  columns: [{ name: "mm", type: "int64" }],
  index: Array.from({ length: count }, (_, number) => number),
  rows: Array.from({ length: count }, (_, number) => [count - number]),
  shape: [height, 1],
});

const column = (selector = "tbody td"): string[] =>
  [...place.querySelectorAll(selector)].map((cell) => cell.textContent);

function button(name: string): HTMLButtonElement {
  const all = [...place.querySelectorAll("button")];
  const found = all.find((one) => (one.getAttribute("aria-label") ?? one.querySelector("span")?.textContent) === name);
  if (!found) throw new Error(`no button ${name} in ${place.innerHTML}`);
  return found;
}

const press = (name: string): void => void act(() => button(name).click());
const direction = (name: string): string | null | undefined => button(name).closest("th")?.getAttribute("aria-sort");
const status = (): string => place.querySelector("[role=status]")?.textContent ?? "";

test.each([
  ["a column that is none", { columns: [null] }],
  ["a column that is a word", { columns: ["month"] }],
  ["a row that is none", { rows: [null] }],
  ["a length that is a list", { shape: [[1], 1] }],
  ["no index", { index: undefined }],
])("%s makes no table", (_, wrong) => {
  expect(isRows(TABLE)).toBe(true);
  expect(isRows({ ...TABLE, ...wrong })).toBe(false);
});

test("a cell that is deeper than can be written is said, and the others are shown", () => {
  const depth = 100_000;
  const value: unknown = JSON.parse(
    `{"columns":[{"name":"a"},{"name":"b"}],"index":[],"rows":[[${"[".repeat(depth)}${"]".repeat(depth)},"May"]],"shape":[1,2]}`,
  );
  if (!isRows(value)) throw new Error("it is a table");
  show(value);
  expect(column()).toEqual(["(nested too deeply to show)", "May"]);
});

test("a press on the head of a column sorts, a second one turns it round, a third one restores the order", () => {
  show(countdown(3));
  expect([column(), direction("mm")]).toEqual([["3", "2", "1"], "none"]);
  press("mm");
  expect([column(), direction("mm")]).toEqual([["1", "2", "3"], "ascending"]);
  press("mm");
  expect([column(), direction("mm")]).toEqual([["3", "2", "1"], "descending"]);
  press("Row labels");
  expect([direction("mm"), direction("Row labels")]).toEqual(["none", "ascending"]);
  press("mm");
  press("mm");
  press("mm");
  expect([column("tbody th"), direction("mm")]).toEqual([["0", "1", "2"], "none"]);
});

test("a long table has pages, and sorting begins at the first", () => {
  show(countdown(45));
  expect([column().length, status()]).toEqual([20, "Rows 1 to 20 of 45"]);
  expect(button("Previous rows").getAttribute("aria-disabled")).toBe("true");
  press("Previous rows");
  expect(status()).toBe("Rows 1 to 20 of 45");
  press("Next rows");
  press("Next rows");
  expect([column(), status()]).toEqual([["5", "4", "3", "2", "1"], "Rows 41 to 45 of 45"]);
  expect(button("Next rows").getAttribute("aria-disabled")).toBe("true");
  press("Next rows");
  expect(status()).toBe("Rows 41 to 45 of 45");
  press("mm");
  expect([column()[0], status()]).toEqual(["1", "Rows 1 to 20 of 45"]);
});

test("a table that fits on a page has no pages, and its shape is said", () => {
  show(countdown(20));
  expect(status()).toBe("20 rows, 1 column");
  expect(() => button("Next rows")).toThrow();
});

test("a table that was cut says so, and that only what is here is sorted", () => {
  show(countdown(50, 12_000));
  expect(status()).toBe("Rows 1 to 20 of 50");
  expect(place.textContent).toContain("The first 50 of 12,000 rows.");
  expect(place.textContent).not.toContain("Only these rows are sorted.");
  press("mm");
  expect(place.textContent).toContain("The first 50 of 12,000 rows. Only these rows are sorted.");
});

test("rows that pandas left out in the middle are missing there until the table is sorted", () => {
  const line = (label: string, text: string): string => `<tr><th>${label}</th><td>${text}</td></tr>`;
  const html =
    `<table><thead><tr><th></th><th>mm</th></tr></thead><tbody>${line("0", "7")}${line("...", "...")}` +
    `${line("311", "5")}</tbody></table><p>312 rows × 1 columns</p>`;
  void act(() => render(<HtmlTable html={html} label="Rain" />, place));
  expect(column()).toEqual(["7", "310 rows are left out", "5"]);
  expect(place.textContent).toContain("The first 1 and the last 1 of 312 rows.");
  press("mm");
  expect(column()).toEqual(["5", "7"]);
});

test("numbers of a column have the same decimals, and digits of binary fractions are cut", () => {
  const cells = [[1], [2.5], [0.1 + 0.2], [null], ["inf"]];
  const fractions = [{ name: "mm", type: "float64" }];
  show({ columns: fractions, index: [], rows: cells, shape: [5, 1] });
  expect(column()).toEqual(["1.0", "2.5", "0.3", "null", "inf"]);
  press("mm");
  expect(column()).toEqual(["0.3", "1.0", "2.5", "inf", "null"]);
  show({ columns: fractions, index: [], rows: [[1e-9], [12]], shape: [2, 1] });
  expect(column()).toEqual(["1e-9", "12"]);
});

test("digits of a column of text are text, and truth is written as Python does", () => {
  show({ columns: [{ name: "zip", type: "str" }], index: [], rows: [["10115"], ["80331"]], shape: [2, 1] });
  expect(place.querySelector("td")?.className).toBe("");
  show({ columns: [{ name: "wet", type: "bool" }], index: [], rows: [[true], [false]], shape: [2, 1] });
  expect(column()).toEqual(["True", "False"]);
});

test("days have no time, and a missing one is called as pandas does", () => {
  const columns = [
    { name: "day", type: "datetime64[ns]" },
    { name: "note", type: "object" },
  ];
  const days = ["2024-05-01 00:00:00", "2024-06-01 00:00:00"];
  show({
    columns,
    index: [0, 1, 2],
    rows: [
      [days[0], ""],
      [days[1], "dry"],
      [null, null],
    ],
    shape: [3, 2],
  });
  expect(column()).toEqual(["2024-05-01", "", "2024-06-01", "dry", "NaT", "NaN"]);
  press("note");
  press("note");
  expect(column()).toEqual(["2024-06-01", "dry", "2024-05-01", "", "NaT", "NaN"]);
});

test("a long text has its whole text as title", () => {
  const text = "rain ".repeat(20).trim();
  show({ columns: [{ name: "note", type: "str" }], index: [], rows: [[text], ["dry"]], shape: [2, 1] });
  expect([...place.querySelectorAll("td")].map((cell) => cell.title)).toEqual([text, ""]);
});

test("HTML that is no table of data is shown without anything else", () => {
  void act(() => render(<HtmlTable html="<p>Trained <b>well</b></p>" label="Model" />, place));
  expect(place.querySelector("[role=group]")?.innerHTML).toBe("<p>Trained <b>well</b></p>");
});
