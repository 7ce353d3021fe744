import { expect, test } from "vitest";
import { groupBlocks, summary } from "../../src/turn/groups";
import { call, finished, shown, type Said } from "./events";

const read = (id: string, cells: string): Said[] => [
  call(id, "read_cells", { cells }),
  finished(id, { name: "read_cells" }),
];

test("calls in a row that only looked at something fold into one line", () => {
  const turn = shown(...read("a", "1, 3-5"), ...read("b", "In[4]"), ["text.delta", { text: "So." }]);
  const [first, second] = groupBlocks(turn.blocks);
  expect(first?.kind === "reading" && summary(first)).toBe("Read 5 cells");
  expect(second).toBe(turn.blocks[2]);
});

test("one alone, one that failed, one that runs and one that changes something stay what they are", () => {
  const turn = shown(
    ...read("a", "1"),
    call("b", "python"),
    finished("b"),
    call("c", "read_cells"),
    finished("c", { status: "error" }),
    call("d", "read_cells"),
  );
  expect(groupBlocks(turn.blocks)).toEqual(turn.blocks);
});

test("a summary says each kind of look once", () => {
  const turn = shown(
    ...read("a", "2"),
    call("b", "variables"),
    finished("b"),
    call("c", "variables", { name: "df" }),
    finished("c"),
  );
  const [row] = groupBlocks(turn.blocks);
  expect(row?.kind === "reading" && summary(row)).toBe("Read 1 cell, looked at variables");
});

test("a range without end does not count without end", () => {
  const turn = shown(...read("a", "0-99999999999999999999"), ...read("b", "9-1"));
  const [row] = groupBlocks(turn.blocks);
  expect(row?.kind === "reading" && summary(row)).toBe("Read 10,001 cells");
});
