/** Characters that are invisible or reorder others, so that a text does not look like what it is. The server marks them
 * in every approval (`agent_kernel/core/invisible_characters.py`); this is the same set for all other texts, except for
 * lone surrogates, with which a streamed text may end. */

const SIGN =
  "\\u00a9\\u00ae\\u203c\\u2049\\u2100-\\u27ff\\u2900-\\u2bff\\u3030\\u303d\\u3297\\u3299\\u{1f000}-\\u{1faff}";
const ACCENT = "\\u0300-\\u036f\\u0483-\\u0489\\u1ab0-\\u1aff\\u1dc0-\\u1dff\\u20d0-\\u20ff\\ufe20-\\ufe2f";

export const INVISIBLE = new RegExp(
  "[" +
    "\\0-\\x08\\x0b-\\x1f\\x7f-\\xa0\\xad" +
    "\\u034f\\u061c\\u070f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u3164\\uffa0" +
    "\\u1680\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u2800\\u3000\\ufeff" +
    "\\ue000-\\uf8ff\\ufff0-\\ufffc" +
    "\\u{13430}-\\u{1345f}\\u{16fe4}\\u{1bca0}-\\u{1bca3}\\u{1d159}\\u{1d173}-\\u{1d17a}" +
    "\\u{e0000}-\\u{10ffff}" +
    "\\ufe00-\\ufe0d" +
    "]" +
    `|(?<![${SIGN}])[\\ufe0e\\ufe0f]` +
    `|(?<=[${ACCENT}][${ACCENT}])[${ACCENT}]`,
  "gu",
);

export const hasInvisible = (text: string): boolean => text.search(INVISIBLE) >= 0;
export const removeInvisible = (text: string): string => text.replace(/\p{Zs}/gu, " ").replace(INVISIBLE, "");

/** The code points of the invisible characters, each once. */
export const invisibleNumbers = (text: string): string[] => [
  ...new Set([...text.matchAll(INVISIBLE)].map(([found]) => `U+${codePoint(found)}`)),
];

/** The code point of a character as a hexadecimal number, such as "202E". */
export const codePoint = (character: string): string =>
  (character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
