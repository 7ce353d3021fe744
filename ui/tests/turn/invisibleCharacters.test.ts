import { expect, test } from "vitest";
import { hasInvisible, removeInvisible } from "../../src/turn/invisibleCharacters";

test.each([
  "\u0000", // below a space
  "\u00ad", // soft hyphen
  "\u034f", // joiner of graphemes
  "\u115f", // filler
  "\u180e",
  "\u200b",
  "\u202e", // turns around
  "\u2028",
  "\u2800", // empty Braille
  "\u3164", // filler, a letter by its class
  "\uffa0",
  "\ufeff",
  "\ufff9", // annotation
  "\u{e0041}", // a tag
  "\u{e0101}", // a selector that carries data
])("%j is not seen, and taken out whole", (char) => {
  const text = `a${char}b`;
  expect(hasInvisible(text)).toBe(true);
  expect(removeInvisible(text)).toBe("ab");
});

test.each(["tab\tand\nline", "caf\u00e9 e\u0301", "\u2764\ufe0f", "\u{1f600}", "\u65e5\u672c", "\ud83d"])(
  "%j is seen as it is",
  (text) => {
    expect(hasInvisible(text)).toBe(false);
    expect(removeInvisible(text)).toBe(text);
  },
);
