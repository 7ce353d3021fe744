import { expect, test } from "vitest";
import { changeSummary } from "../../src/turn/changeSummary";
import { call, finished, shown } from "./events";

const change = (id: string, name: string, what: string, cell: string) =>
  [call(id, name), finished(id, { details: { change: { do: what, cell } } })] as const;

test("cells are counted once, however often they were changed", () => {
  const turn = shown(
    ...change("a", "edit_cell", "edit", "x"),
    ...change("b", "edit_cell", "edit", "x"),
    ...change("c", "insert_cell", "insert", "y"),
  );
  expect(changeSummary(turn)).toEqual(["1 cell changed", "1 cell added"]);
});

test("files count with and without a call", () => {
  const turn = shown(
    call("a"),
    ["file.produced", { call: "a", file: { id: "1" } }],
    ["file.produced", { call: "", file: { id: "2" } }],
  );
  expect(changeSummary(turn)).toEqual(["2 files"]);
});

test("details of another shape are no changes", () => {
  const odd = [null, 3, [], "edit", { do: "explode", cell: "x" }, { do: 7 }];
  for (const given of odd)
    expect(changeSummary(shown(call("a"), finished("a", { details: { change: given } })))).toEqual([]);
});

test.each(["constructor", "toString", "__proto__"])("a call with the name %s changed no cell", (name) => {
  expect(changeSummary(shown(...change("a", name, name, "x")))).toEqual([]);
});
