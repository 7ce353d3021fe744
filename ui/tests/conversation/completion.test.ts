import { describe, expect, test } from "vitest";
import { commanded, completing, ranked } from "../../src/conversation/completion";

describe("completion", () => {
  test("offers commands for the first word only", () => {
    expect(completing("/ex", 3)).toEqual({ kind: "command", from: 0, to: 3, query: "ex" });
    expect(completing("a /ex", 5)).toBeNull();
    expect(completing("/ex now", 7)).toBeNull();
  });

  test("offers names behind an @ at any word, not within an address", () => {
    expect(completing("mean of @d", 10)).toEqual({ kind: "mention", from: 8, to: 10, query: "d" });
    expect(completing("(@", 2)?.query).toBe("");
    expect(completing("me@example", 10)).toBeNull();
    expect(completing("@größe", 6)?.query).toBe("größe");
  });

  test("looks at what stands before the caret", () => {
    expect(completing("@df and more", 3)?.query).toBe("df");
  });

  test("puts what begins so first", () => {
    const names = ["undo", "new", "fork", "renew"].map((name) => ({ name }));
    expect(ranked(names, "n").map(({ name }) => name)).toEqual(["new", "undo", "renew"]);
  });

  test("knows a command from a path and from prose", () => {
    expect(commanded("/export markdown")).toEqual({ name: "export", rest: "markdown" });
    expect(commanded("/Undo")).toEqual({ name: "undo", rest: "" });
    expect(commanded("/home/me/x.csv")).toBeNull();
    expect(commanded("1/2")).toBeNull();
  });
});
