import { expect, test } from "vitest";
import { plainText, parseTerminalOutput } from "../../src/turn/terminalOutput";

const ESC = "\u001b";

test("colours become names, and end where they end", () => {
  expect(parseTerminalOutput(`${ESC}[1;31mno${ESC}[0m yes`)).toEqual([
    { text: "no", colour: "red", bold: true },
    { text: " yes", colour: "", bold: false },
  ]);
});

test.each([
  ["38;5;9", "bright-red"],
  ["38;5;3", "yellow"],
  ["38;5;200", ""],
  ["38;2;1;2;3", ""],
  ["48;5;1", ""],
  ["48;5;1;32", "green"],
  ["97", "bright-white"],
])("of many colours %s is %j: the first 16 have names", (code, colour) => {
  expect(parseTerminalOutput(`${ESC}[${code}mx`)).toEqual([{ text: "x", colour, bold: false }]);
});

test("nothing else of a terminal's language is left", () => {
  const hostile = `a${ESC}]0;title\u0007b${ESC}[2J${ESC}[1;1Hc${ESC}(Bd\u0007\u0008e${ESC}]8;;javascript:alert(1)\u0007f`;
  expect(plainText(hostile)).toBe("abcdef");
});

test("a sequence that does not end is dropped", () => {
  expect(plainText(`a${ESC}[31`)).toBe("a");
});

test("a progress bar shows its last state", () => {
  expect(plainText("10%\r50%\r100%\ndone\r\nnext")).toBe("100%\ndone\nnext");
});

test("long output of sequences takes time in proportion to its length", () => {
  const many = `${ESC}[`.repeat(100_000);
  expect(plainText(many).length).toBeLessThanOrEqual(many.length);
});

test("a line that is written over again and again takes time in proportion to its length", () => {
  const taken = (length: number) => {
    const output = "\r".repeat(length) + "x";
    return Math.min(
      ...[1, 2, 3, 4, 5].map(() => {
        const began = performance.now();
        expect(plainText(output)).toBe("x");
        return performance.now() - began;
      }),
    );
  };
  taken(1_000);
  expect(taken(400_000) / Math.max(taken(10_000), 0.1)).toBeLessThan(400); // 1600 if it grew with the square
});
