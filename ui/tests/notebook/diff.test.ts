import { describe, expect, it } from "vitest";
import { counts, diff, hunks, type Line } from "../../src/notebook/diff";

const before = (lines: readonly Line[]) => lines.filter((line) => line.kind !== "new").map((line) => line.text);
const after = (lines: readonly Line[]) => lines.filter((line) => line.kind !== "gone").map((line) => line.text);
const split = (text: string) => (text === "" ? [] : text.split("\n"));

describe("diff", () => {
  it("names the line that changed and leaves the others", () => {
    const found = diff("a\nb\nc", "a\nB\nc");
    expect(found.map((line) => `${line.kind} ${line.text}`)).toEqual(["same a", "gone b", "new B", "same c"]);
    expect(found.map((line) => [line.before, line.after])).toEqual([
      [1, 1],
      [2, null],
      [null, 2],
      [3, 3],
    ]);
  });

  it("holds both texts whole, whatever they are", () => {
    let seed = 7;
    const random = (most: number) => (seed = (seed * 48_271) % 2_147_483_647) % most;
    for (let round = 0; round < 300; round++) {
      const text = () => Array.from({ length: random(12) }, () => "abc"[random(3)] ?? "").join("\n");
      const [old, fresh] = [text(), text()];
      const found = diff(old, fresh);
      expect(before(found)).toEqual(split(old));
      expect(after(found)).toEqual(split(fresh));
    }
  });

  it("finds the shortest script", () => {
    const { gone, new: added } = counts(diff("a\nb\nc\na\nb\nb\na", "c\nb\na\nb\na\nc"));
    expect(gone + added).toBe(5); // the example of the paper
  });

  it("shows texts with nothing in common one after the other, however long they are", () => {
    const lines = (word: string) => Array.from({ length: 30_000 }, (_, index) => `${word}${index}`).join("\n");
    expect(counts(diff(lines("a"), lines("b")))).toEqual({ gone: 30_000, new: 30_000 });
  });

  it("leaves out what is far from a change, and says so", () => {
    const text = Array.from({ length: 40 }, (_, index) => `line ${index}`);
    const shown = hunks(diff(text.join("\n"), text.toSpliced(20, 1, "other").join("\n")));
    expect(shown.map((line) => line?.text ?? "...")).toEqual([
      "...",
      "line 17",
      "line 18",
      "line 19",
      "line 20",
      "other",
      "line 21",
      "line 22",
      "line 23",
      "...",
    ]);
  });
});
