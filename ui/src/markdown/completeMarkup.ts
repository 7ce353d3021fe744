/** Closes the open markup at the end of a growing text: a word in bold is bold from its first letter on, and nothing
 * moves when the closing marks arrive. */

/** Matches a last line that is only the start of a mark, such as `**`. Such a line is not shown yet. */
const MARK_ALONE = /(?:^|\n)[ \t>]*(?:[-=*+_#>|~]+|`{1,2}|\d{1,9}[.)]?|\$)[ \t]*$/;
const FENCE = /^[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(`{3,}|~{3,})/;
const TABLE_HEAD = /^\|.*[^|\s]/;
const DELIMITERS = /^[|:\- \t]*$/;
/** A last paragraph with more characters than this is shown as it is: marks in it are not closed. */
const MAX_LOOKED_AT = 4_000;

/** Return the text with its open markup closed. A complete block is returned unchanged. */
export function completeMarkup(source: string): string {
  if (insideFence(source)) return source;
  const shown = table(source.replace(MARK_ALONE, ""));
  const from = shown.lastIndexOf("\n\n") + 1;
  return shown.length - from > MAX_LOOKED_AT ? shown : shown.slice(0, from) + line(shown.slice(from));
}

function insideFence(source: string): boolean {
  let fence = "";
  for (const line of source.split("\n")) {
    const mark = FENCE.exec(line)?.[1] ?? "";
    if (!fence) fence = mark;
    else if (mark.startsWith(fence) && line.trim() === mark) fence = "";
  }
  return fence !== "";
}

/** If the text is only the header of a table, add the line of dashes that must follow it, so that it is shown as a
 * table already. */
function table(source: string): string {
  const lines = source.trimEnd().split("\n");
  const head = lines[0] ?? "";
  if (!TABLE_HEAD.test(head) || lines.length > 2 || !DELIMITERS.test(lines[1] ?? "")) return source;
  const columns = Math.max(
    1,
    head
      .replace(/\\\||`[^`]*`/g, "")
      .replace(/^\||\|\s*$/g, "")
      .split("|").length,
  );
  return `${head.replace(/\|?\s*$/, " |")}\n|${"---|".repeat(columns)}`;
}

interface Open {
  mark: string;
  at: number;
}

/** Close the open marks at the end of a paragraph. The text of an unfinished link is kept; an unfinished image is
 * removed. */
function line(source: string): string {
  const open: Open[] = [];
  let at = 0;
  while (at < source.length) {
    const char = source.charAt(at);
    if (char === "\\") {
      if (source.charAt(at + 1) === "(" || source.charAt(at + 1) === "[") {
        const end = source.indexOf(source.charAt(at + 1) === "(" ? "\\)" : "\\]", at + 2);
        if (end < 0) return source.slice(0, at) + ends(open) + source.slice(at);
        at = end;
      }
      at += 2;
    } else if (char === "`") {
      const ticks = run(source, at, "`");
      const end = source.indexOf("`".repeat(ticks), at + ticks);
      if (end < 0) return at + ticks < source.length ? source + "`".repeat(ticks) + ends(open) : source.slice(0, at);
      at = end + ticks;
    } else if (char === "*" || char === "_" || char === "~") {
      const count = run(source, at, char);
      emphasis(source, at, count, open);
      at += count;
    } else if (char === "[") {
      const link = target(source, at);
      if (link.unfinished) {
        const picture = source.charAt(at - 1) === "!";
        const read = link.text.includes("[") ? link.text : line(link.text);
        return picture ? source.slice(0, at - 1) + ends(open) : source.slice(0, at) + read + ends(open);
      }
      at++;
    } else {
      at++;
    }
  }
  return withoutOpenMarks(source, open);
}

/** Close the open marks, and remove those with nothing after them, which would be shown as characters. */
function withoutOpenMarks(source: string, open: Open[]): string {
  let shown = source.replace(/(?:\$|(?<!~)~|[\s\\!])+$/, "");
  const left = [...open];
  for (let last = left.at(-1); last?.at !== undefined; last = left.at(-1)) {
    if (last.at + last.mark.length < shown.length) break;
    shown = shown.slice(0, last.at).trimEnd();
    left.pop();
  }
  return left.length > 0 || shown.length < source.trimEnd().length ? shown + ends(left) : source;
}

const ends = (open: readonly Open[]): string =>
  open
    .map(({ mark }) => mark)
    .reverse()
    .join("");

function run(source: string, at: number, char: string): number {
  let count = 1;
  while (source.charAt(at + count) === char) count++;
  return count;
}

function emphasis(source: string, at: number, count: number, open: Open[]): void {
  const char = source.charAt(at);
  if (char === "~" && count !== 2) return;
  const before = source.charAt(at - 1);
  const next = source.charAt(at + count);
  const closes = before !== "" && !/\s/.test(before) && !(char === "_" && /\w/.test(next));
  const opens = !/^\s/.test(next) && !(char === "_" && /\w/.test(before));
  let left = count;
  while (closes && left > 0) {
    const last = open.at(-1);
    if (last?.mark.charAt(0) !== char || last.mark.length > left) break;
    open.pop();
    left -= last.mark.length;
  }
  if (!opens) return;
  for (; left > 0; left -= Math.min(2, left))
    open.push({ mark: char.repeat(Math.min(2, left)), at: at + count - left });
}

/** Whether the link that starts with the `[` at `at` is unfinished, and its visible text. */
function target(source: string, at: number): { unfinished: boolean; text: string } {
  const close = source.indexOf("]", at);
  if (close < 0) return { unfinished: !source.slice(at).includes("\n"), text: source.slice(at + 1) };
  if (source.charAt(close + 1) !== "(") return { unfinished: false, text: "" };
  const end = source.indexOf(")", close);
  return { unfinished: end < 0 && !/\s/.test(source.slice(close)), text: source.slice(at + 1, close) };
}
