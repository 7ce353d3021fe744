import { expect, test } from "vitest";
import { announcements } from "../../src/turn/announcements";
import { emptyTurn, type TurnView } from "../../src/turn/turn";
import { asks, call, finished, more, over, type Said } from "./events";

/** What is read aloud as the parts of a turn come. */
function spoken(...parts: Said[][]): string[] {
  let turn: TurnView = emptyTurn("t", "s");
  return parts.flatMap((part) => {
    const before = turn;
    turn = more(turn, ...part);
    return announcements(before, turn).map(({ text, urgent }) => (urgent ? `! ${text}` : text));
  });
}

test("a text is read once, when it is finished", () => {
  const words: Said[][] = [[["text.delta", { text: "It is " }]], [["text.delta", { text: "42." }]], [over()]];
  expect(spoken(...words)).toEqual(["It is 42.", "Done"]);
});

test("a call is read with how it ended, reasoning is not read", () => {
  const parts = [[["reasoning.delta", { text: "hm" }] as Said], [call("c", "python", { code: "x" })], [finished("c")]];
  expect(spoken(...parts)).toEqual(["Run x in your kernel: done"]);
});

test("a question is read at once, and only once", () => {
  const again: Said = ["call.output", { call: "c", text: "", stream: "stdout" }];
  expect(spoken([call("c", "python", { code: "x" })], [asks("c")], [again], [again])).toEqual([
    "! Your answer is needed: Run x in your kernel? Press Alt+Enter to go there.",
  ]);
});

test("a cell that the model names by its id is read as its number", () => {
  const before = emptyTurn("t", "s");
  const now = more(before, call("c", "edit_cell", { cell: "b7" }), asks("c"));
  const [question] = announcements(before, now, ["a1", "b7"]);
  expect(question?.text).toBe("Your answer is needed: Edit cell 2 in your kernel? Press Alt+Enter to go there.");
});

test("a turn that fails says why", () => {
  const error = { code: "engine_error", message: "The model is gone." };
  expect(spoken([over({ state: "failed", reason: "x", error })])).toEqual(["! Failed: The model is gone."]);
});
