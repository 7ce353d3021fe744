import { describe, expect, test } from "vitest";
import { parseCommand, findCompletion, rank } from "../../src/conversation/completion";

describe("completion", () => {
  test("offers commands for the first word only", () => {
    expect(findCompletion("/ex", 3)).toEqual({ kind: "command", from: 0, to: 3, query: "ex" });
    expect(findCompletion("a /ex", 5)).toBeNull();
    expect(findCompletion("/ex now", 7)).toBeNull();
  });

  test("offers names behind an @ at any word, not within an address", () => {
    expect(findCompletion("mean of @d", 10)).toEqual({ kind: "mention", from: 8, to: 10, query: "d" });
    expect(findCompletion("(@", 2)?.query).toBe("");
    expect(findCompletion("me@example", 10)).toBeNull();
    expect(findCompletion("@größe", 6)?.query).toBe("größe");
  });

  test("looks at what stands before the caret", () => {
    expect(findCompletion("@df and more", 3)?.query).toBe("df");
  });

  test("puts what begins so first", () => {
    const names = ["undo", "new", "fork", "renew"].map((name) => ({ name }));
    expect(rank(names, "n", 8).map(({ name }) => name)).toEqual(["new", "undo", "renew"]);
  });

  test("knows a command from a path and from prose", () => {
    expect(parseCommand("/export markdown")).toEqual({ name: "export", rest: "markdown" });
    expect(parseCommand("/Undo")).toEqual({ name: "undo", rest: "" });
    expect(parseCommand("/home/me/x.csv")).toBeNull();
    expect(parseCommand("1/2")).toBeNull();
  });
});
