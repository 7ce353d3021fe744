import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test } from "vitest";
import { isRows, Table } from "../../src/media/Table";

let place: HTMLElement;
beforeEach(() => {
  place = document.body.appendChild(document.createElement("div"));
});
afterEach(() => {
  render(null, place);
  place.remove();
});

const TABLE = { columns: [{ name: "month", type: "str" }], index: [0], rows: [["May"]], shape: [1, 1] };

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
  void act(() => render(<Table rows={value} label="Rain" />, place));
  expect([...place.querySelectorAll("td")].map((cell) => cell.textContent)).toEqual([
    "(nested too deeply to show)",
    "May",
  ]);
});
