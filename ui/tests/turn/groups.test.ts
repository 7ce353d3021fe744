import { expect, test } from "vitest";
import { groupBlocks, summary } from "../../src/turn/groups";
import { call, finished, over, shown, type Said } from "./events";

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

const table = { mime: "application/vnd.agent-kernel.bundle+json", data: "e30=" };

test("an answer of rows gets the tables above it", () => {
  const rows: Said = ["text.delta", { text: "The result:\n\n     n\n    0  1\n    ... 7 more rows" }];
  const turn = shown(call("a"), finished("a", { media: [table, { mime: "image/png" }] }), rows, over());
  expect(groupBlocks(turn.blocks)[1]).toMatchObject({ kind: "rows", rows: "     n\n    0  1\n", tables: [table] });
});

test("an answer stays text while it grows, without a table, and if it says more than rows", () => {
  const rows = "The result:\n\n    0  1";
  const run = [call("a"), finished("a", { media: [table] })];
  const turns = [
    shown(...run, ["text.delta", { text: rows }]),
    shown(call("a"), finished("a"), ["text.delta", { text: rows }], over()),
    shown(...run, ["text.delta", { text: `${rows}\n\nSo it is 1.` }], over()),
    shown(...run, ["text.delta", { text: `Look. ${rows}` }], over()),
  ];
  for (const { blocks } of turns) expect(groupBlocks(blocks)[1]).toBe(blocks[1]);
});
