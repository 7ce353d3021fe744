import { expect, test } from "vitest";
import type { CallBlock } from "../../src/turn/turn";
import { ENGLISH, setTranslation } from "../../src/translation/translation";
import {
  failureText,
  formatBytes,
  callLabel,
  formatDuration,
  callPhrase,
  placeOf,
  statusOf,
  toolLabel,
  verbOf,
} from "../../src/turn/labels";
import { call, shown, type Said } from "./events";

function block(said: Said): CallBlock {
  const [first] = shown(said).blocks;
  if (first?.kind !== "call") throw new Error("no call");
  return first;
}

test("code is named by what it does", () => {
  expect(callPhrase(block(call("c", "python", { code: "import pandas\ndf.groupby('month').sum()" })))).toEqual({
    kind: "run",
    verb: "Group",
    target: "df by month",
  });
});

test("code that waits for an answer is named by its own line", () => {
  const waiting = block(call("c", "python", { code: "df.groupby('month').sum()" }));
  const approval = { id: "a", decision: "" } as unknown as CallBlock["approval"];
  expect(callPhrase({ ...waiting, approval })).toEqual({
    kind: "run",
    verb: "Run",
    target: "df.groupby('month').sum()",
  });
});

test("a tool that nobody here knows is called what the server calls it", () => {
  expect(callPhrase(block(call("c", "weather__today", { city: "Ulm" })))).toMatchObject({
    kind: "tool",
    verb: "weather__today",
    target: "Ulm",
  });
});

test.each([
  ["edit_cell", "rejected"],
  ["python", "denied"],
])("a call of %s that the user refused is %s", (name, word) => {
  expect(statusOf({ ...block(call("c", name)), status: "denied" })).toBe(word);
});

test("a target of one very long line is cut", () => {
  expect(callPhrase(block(call("c", "shell", { commands: "x".repeat(10_000) }))).target).toHaveLength(200);
});

test("a target is not turned around or hidden in", () => {
  expect(callPhrase(block(call("c", "python", { code: "\u202eprint(1)\u200b" }))).target).toBe("print(1)");
});

test("a deed says where it is done", () => {
  expect(callLabel(block(call("c", "python", { code: "x = 1" })))).toBe("Run x = 1 in your kernel");
});

test.each([
  [0, ""],
  [Number.NaN, ""],
  [0.004, "0.01 s"],
  [0.0949, "0.09 s"],
  [0.0951, "0.1 s"],
  [9.949, "9.9 s"],
  [9.96, "10 s"],
  [59.4, "59 s"],
  [59.6, "1 min 0 s"],
  [3_599.6, "1 h 0 min"],
])("%d seconds are %j", (seconds, said) => expect(formatDuration(seconds)).toBe(said));

test("a duration has the decimal separator of the user's language", () => {
  setTranslation({ ...ENGLISH, language: "de-DE" });
  try {
    expect([0.04, 3.21].map(formatDuration)).toEqual(["0,04 s", "3,2 s"]);
  } finally {
    setTranslation(ENGLISH);
  }
});

test.each([
  [1, "1 byte"],
  [999, "999 bytes"],
  [1_500, "1.5 kB"],
  [999_600, "1.0 MB"],
  [5e12, "5.0 TB"],
])("%d bytes are %j", (size, said) => expect(formatBytes(size)).toBe(said));

test("nouns follow their number", () => {});

test.each(["constructor", "toString", "__proto__", "hasOwnProperty"])("%s is a name like any other", (name) => {
  const named = block(call("c", name, { city: "Ulm" }));
  expect(callPhrase(named)).toEqual({ kind: "tool", verb: name, target: "Ulm" });
  expect(verbOf(name)).toBe(name);
  expect(placeOf(name)).toBeNull();
  expect(statusOf({ ...named, status: name })).toBe(name);
});

test.each([
  [
    "Cell 0 (cell-0) was not read by you yet, so nothing was done. Its present text is:\na = 1\nCall again if your change still fits.",
    "The agent had not read the cell, so it was not changed. The agent can try again.",
  ],
  [
    "Cell 0 (cell-0) has changed since you read it, so nothing was done. Read it first: read_cells.",
    "The cell has changed since the agent read it, so it was not changed. The agent can try again.",
  ],
  ["Traceback\nZeroDivisionError: division by zero\n", "ZeroDivisionError: division by zero"],
])("a failed call says in one line why, without words for the model: %s", (result, line) => {
  expect(failureText(result)).toBe(line);
});

test.each([
  ["Cell cell-3 is gone; look at notebook_cells.", "The cell has been deleted, so nothing was changed."],
  [
    "Cell 3 (cell-4) was changed meanwhile, so nothing was done. Read it again: read_cells.",
    "The cell has been changed, so its text stays.",
  ],
])("what a page answers to the model is said in words for the user: %s", (result, line) => {
  expect(failureText(result)).toBe(line);
});

test("a tool in its place is named in the user's words", () => {
  expect(toolLabel("edit_cell", "client")).toBe("Edit cell in the open notebook");
  expect(toolLabel("Search mail", "")).toBe("Search mail");
});
