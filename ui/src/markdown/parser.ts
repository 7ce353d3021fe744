/** The Markdown dialect of the panel: no HTML; tables, bare links and formulas. It turns text
 * into tokens, without side effects; `elements.tsx` renders them. */
import MarkdownIt, { type Env, type StateBlock, type StateCore, type StateInline, type Token } from "markdown-it";
import { isLink, isPicture } from "./urls";

export type { Token };
export type References = NonNullable<Env["references"]>;

/** Maximum length of a formula within a line. A dollar sign that is not closed within this length is a currency
 * sign. */
const MAX_INLINE_FORMULA = 1_000;
const MAX_FORMULA_LINES = 200;
/** Text after an open dollar sign must match this to be shown as a formula that is still being written. */
const LOOKS_LIKE_TEX = /[\\^_{}=]|^[A-Za-z(|][^\s]{0,2}$/;

const md = new MarkdownIt({ html: false, linkify: true, typographer: false, maxNesting: 40 });
md.validateLink = (url) => isLink(url) || isPicture(url);
// "data.py" and "README.md" are names of files, not of sites.
md.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
for (const scheme of ["ftp:", "//"]) md.linkify.add(scheme, null);
md.inline.ruler.before("escape", "formula", inlineFormula);
md.block.ruler.before("fence", "formula", blockFormula, { alt: ["paragraph", "reference", "blockquote", "list"] });

md.core.ruler.after("inline", "task", markTasks);

/** Parse a text with its inline content. `open`: more text will follow, so the last formula may be unfinished. */
export function parse(source: string, references: References, open: boolean): Token[] {
  return md.parse(source, { references: { ...references }, open });
}

/** Block tokens without inline content. Link definitions are added to `references`. */
export function parseBlocks(source: string, references: References, open: boolean): Token[] {
  const tokens: Token[] = [];
  md.block.parse(source, md, { references, open }, tokens);
  return tokens;
}

const TASK = /^\[([ xX])\][ \t]+(?=\S)/;

/** Replace the mark `[ ]` or `[x]` at the start of a list item by a token that is shown as a check box. */
function markTasks({ tokens, Token }: StateCore): void {
  tokens.forEach((token, at) => {
    const item = tokens[at - 2];
    const [first] = token.children ?? [];
    if (token.type !== "inline" || item?.type !== "list_item_open" || first?.type !== "text") return;
    const mark = TASK.exec(first.content);
    if (!mark) return;
    const box = new Token("task", "", 0);
    box.content = mark[1] === " " ? "" : "x";
    first.content = first.content.slice(mark[0].length);
    token.children?.unshift(box);
    item.attrSet("class", "ak-task");
  });
}

function inlineFormula(state: StateInline, silent: boolean): boolean {
  const fence = opening(state.src, state.pos);
  if (!fence) return false;
  const from = state.pos + fence.open.length;
  const end = findClosing(state.src, from, Math.min(state.posMax, from + MAX_INLINE_FORMULA), fence);
  if (end < 0) {
    if (!isOpen(state.env) || state.posMax - from > MAX_INLINE_FORMULA) return false;
    const rest = state.src.slice(from, state.posMax);
    if (fence.open === "$" && !LOOKS_LIKE_TEX.test(rest)) return false;
    if (!silent) state.push("formula_open_ended", "", 0).content = rest;
    state.pos = state.posMax;
    return true;
  }
  if (!silent) state.push(fence.display ? "formula_display" : "formula", "", 0).content = state.src.slice(from, end);
  state.pos = end + fence.close.length;
  return true;
}

const DIGIT_OR_DOLLAR = new Set("0123456789$");

interface Fence {
  open: string;
  close: string;
  display: boolean;
}

const FENCES: readonly Fence[] = [
  { open: "$$", close: "$$", display: true },
  { open: "\\[", close: "\\]", display: true },
  { open: "\\(", close: "\\)", display: false },
  { open: "$", close: "$", display: false },
];

function opening(source: string, at: number): Fence | undefined {
  const first = source.charCodeAt(at);
  if (first !== 0x24 && first !== 0x5c) return undefined;
  const fence = FENCES.find(({ open }) => source.startsWith(open, at));
  // The rule of Pandoc: a dollar sign before a space, as in "$ 5", does not open a formula.
  return fence?.open === "$" && /^[\s$]?$/.test(source.charAt(at + 1)) ? undefined : fence;
}

function findClosing(source: string, from: number, to: number, { close, open }: Fence): number {
  for (let at = source.indexOf(close, from); at >= 0 && at < to; at = source.indexOf(close, at + 1)) {
    if (at === from || isEscaped(source, at)) continue;
    // In "$5 and $6" the dollar signs are currency signs.
    if (open === "$" && (source.charCodeAt(at - 1) <= 32 || DIGIT_OR_DOLLAR.has(source.charAt(at + 1)))) continue;
    return at;
  }
  return -1;
}

function isEscaped(source: string, at: number): boolean {
  let slashes = 0;
  while (source.charAt(at - 1 - slashes) === "\\") slashes++;
  return slashes % 2 === 1;
}

/** Rule of markdown-it for a formula as a block: `$$` or `\[` at the start of a line, up to the closing mark at the end
 * of a line. A formula contains no blank lines. */
function blockFormula(state: StateBlock, startLine: number, endLine: number, silent: boolean): boolean {
  if ((state.sCount[startLine] ?? 0) - state.blkIndent >= 4) return false;
  const first = line(state, startLine);
  const fence = FENCES.find(({ open, display }) => display && first.startsWith(open));
  if (!fence) return false;
  const lines: string[] = [];
  for (let at = startLine; at < Math.min(endLine, startLine + MAX_FORMULA_LINES); at++) {
    const text = at === startLine ? first.slice(fence.open.length) : line(state, at);
    if (at > startLine && (!text.trim() || (state.sCount[at] ?? 0) < state.blkIndent)) return false;
    const end = text.indexOf(fence.close);
    if (end >= 0) {
      if (text.slice(end + fence.close.length).trim()) return false; // text follows, so this is no block
      if (!silent) put(state, startLine, at + 1, [...lines, text.slice(0, end)].join("\n"), "formula_block");
      return true;
    }
    lines.push(text);
  }
  if (!isOpen(state.env) || endLine < state.lineMax) return false;
  if (!silent) put(state, startLine, endLine, lines.join("\n").trim(), "formula_open_ended_block");
  return true;
}

function line(state: StateBlock, number: number): string {
  return state.src.slice((state.bMarks[number] ?? 0) + (state.tShift[number] ?? 0), state.eMarks[number]);
}

function put(state: StateBlock, from: number, to: number, content: string, type: string): void {
  state.line = to;
  const token = state.push(type, "", 0);
  token.block = true;
  token.content = content;
  token.map = [from, to];
}

const isOpen = (env: Env): boolean => env["open"] === true;
