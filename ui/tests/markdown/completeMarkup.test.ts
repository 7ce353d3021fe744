import { expect, test } from "vitest";
import { completeMarkup } from "../../src/markdown/completeMarkup";

test("a long row of marks in the middle of a text is read once, not once for each way to part it", () => {
  const source = `${"$".repeat(60)}x`;
  expect(completeMarkup(source)).toBe(source);
});

test.each([
  ["**bold $", "**bold**"],
  ["**bold $$", "**bold**"],
  ["**bold ~", "**bold**"],
  ["**bold $!\\ $$$", "**bold**"],
  ["a !", "a"],
])("marks at the end of %j have nothing behind them yet", (source, shown) => {
  expect(completeMarkup(source)).toBe(shown);
});
