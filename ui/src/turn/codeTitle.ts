/** Titles of Python programs, which the panel shows for a call of the tool `python`: "Group df by month" instead of a
 * line of code. A title is derived from the code alone. If no rule matches a program, its title is one line of its code
 * (`tellingLine`). */
import { trans } from "../translation/translation";

interface CodeTitle {
  verb: string;
  target: string;
}

/** `code` is the program; `masked` has the same length, with blanks for comments and the contents of strings. */
interface Program {
  code: string;
  masked: string;
}

type Rule = (program: Program) => CodeTitle | null;

const MAX_CODE = 20_000;
const MAX_TARGET = 120;
const NAME = "[A-Za-z_]\\w*";
/** A pattern for a variable, an attribute or a column: `df`, `self.df`, `df["a"]`. */
const SUBJECT = `(${NAME}(?:\\.${NAME})*?(?:\\[[^\\[\\]]*\\])?)`;

/** Calls that have effects beyond variables, such as on files or processes. The title of a program with such a call is
 * the line of the call. */
const EFFECT =
  /(?:^|[^\w.])(?:os\.(?!path\b|getcwd\b|listdir\b|environ\b|sep\b)\w+|shutil\.\w+|subprocess\.\w+|sys\.exit|exec|eval|__import__|requests\.\w+|httpx\.\w+|urllib[\w.]*|socket\.\w+|get_ipython)\s*\(|^\s*[!%]|\.(?:unlink|rmdir|rename|write_text|write_bytes)\(/m;
const CHARTS = new Map([
  ["line", () => trans.__("a line chart")],
  ["plot", () => trans.__("a line chart")],
  ["lineplot", () => trans.__("a line chart")],
  ["bar", () => trans.__("a bar chart")],
  ["barh", () => trans.__("a bar chart")],
  ["barplot", () => trans.__("a bar chart")],
  ["countplot", () => trans.__("a bar chart")],
  ["hist", () => trans.__("a histogram")],
  ["histplot", () => trans.__("a histogram")],
  ["histogram", () => trans.__("a histogram")],
  ["box", () => trans.__("a box plot")],
  ["boxplot", () => trans.__("a box plot")],
  ["scatter", () => trans.__("a scatter plot")],
  ["scatterplot", () => trans.__("a scatter plot")],
  ["regplot", () => trans.__("a scatter plot")],
  ["pie", () => trans.__("a pie chart")],
  ["heatmap", () => trans.__("a heat map")],
  ["imshow", () => trans.__("an image")],
  ["area", () => trans.__("an area chart")],
  ["kde", () => trans.__("a density plot")],
  ["density", () => trans.__("a density plot")],
  ["kdeplot", () => trans.__("a density plot")],
  ["violinplot", () => trans.__("a violin plot")],
  ["violin", () => trans.__("a violin plot")],
  ["pairplot", () => trans.__("a pair plot")],
  ["step", () => trans.__("a step chart")],
  ["errorbar", () => trans.__("a chart with error bars")],
]);

/** The first rule that matches a program makes its title. Rules for results (files, charts, models) come before rules
 * for the steps that lead to them. */
const RULES: readonly Rule[] = [
  writeTitle,
  plotTitle,
  trained,
  callRule(
    `${SUBJECT}\\.predict\\(`,
    () => trans.__("Predict"),
    (_, subject) => trans.__("with %1", subject),
  ),
  callRule(
    "pd\\.crosstab\\(",
    () => trans.__("Cross-tabulate"),
    () => trans.__("columns"),
  ),
  callRule(
    `${SUBJECT}\\.pivot(?:_table)?\\(`,
    () => trans.__("Pivot"),
    (_, subject) => subject,
  ),
  groupTitle,
  callRule(
    `${SUBJECT}\\.value_counts\\(`,
    () => trans.__("Count values"),
    (_, subject) => trans.__("of %1", subject),
  ),
  joinTitle,
  callRule(
    `${SUBJECT}\\.nlargest\\(`,
    () => trans.__("Find the largest"),
    (_, subject) => trans.__("of %1", subject),
  ),
  callRule(
    `${SUBJECT}\\.nsmallest\\(`,
    () => trans.__("Find the smallest"),
    (_, subject) => trans.__("of %1", subject),
  ),
  callRule(
    `${SUBJECT}\\.describe\\(`,
    () => trans.__("Describe"),
    (_, subject) => subject,
  ),
  callRule(
    `${SUBJECT}\\.corr\\(`,
    () => trans.__("Correlate"),
    (_, subject) => subject,
  ),
  callRule(
    `${SUBJECT}\\.resample\\(`,
    () => trans.__("Resample"),
    (_, subject) => subject,
  ),
  callRule(
    `${SUBJECT}\\.sort_values\\(`,
    () => trans.__("Sort"),
    (args, subject) => groupedSubject(subject, args),
  ),
  callRule(
    `${SUBJECT}\\.drop_duplicates\\(`,
    () => trans.__("Drop duplicates"),
    (_, subject) => trans.__("of %1", subject),
  ),
  callRule(
    `${SUBJECT}\\.fillna\\(`,
    () => trans.__("Fill missing values"),
    (_, subject) => trans.__("of %1", subject),
  ),
  callRule(
    `${SUBJECT}\\.dropna\\(`,
    () => trans.__("Drop missing values"),
    (_, subject) => trans.__("of %1", subject),
  ),
  read,
  callRule(
    `${SUBJECT}\\.(?:head|tail|sample)\\(`,
    () => trans.__("Show rows"),
    (_, subject) => trans.__("of %1", subject),
  ),
  callRule(
    `${SUBJECT}\\.info\\(`,
    () => trans.__("Look at"),
    (_, subject) => subject,
  ),
  defined,
  importTitle,
];

/** Return what a program does in a few words. */
export function codeTitle(source: string): CodeTitle {
  const code = source.slice(0, MAX_CODE);
  const program = { code, masked: mask(code) };
  const effect = EFFECT.exec(program.masked);
  const title = effect ? null : firstTitle(program);
  const target = title?.target ?? (effect ? lineAt(code, effect.index + effect[0].search(/\S/)) : loopLine(program));
  return { verb: title?.verb ?? trans.__("Run"), target: target.replace(/\s+/g, " ").trim().slice(0, MAX_TARGET) };
}

function firstTitle(program: Program): CodeTitle | null {
  for (const rule of RULES) {
    const title = rule(program);
    if (title) return title;
  }
  return null;
}

/** Replace comments and the contents of strings by blanks, so that the rules see code only. Positions stay the same. */
function mask(code: string): string {
  return code.replace(
    /("""|''')[\s\S]*?(?:\1|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|#[^\n]*/g,
    (text: string, triple?: string) => {
      if (text.startsWith("#")) return " ".repeat(text.length);
      const edge = triple?.length ?? 1;
      if (text.length < 2 * edge) return text;
      const inside = text.slice(edge, -edge).replace(/[^\n]/g, " ");
      return text.slice(0, edge) + inside + text.slice(-edge);
    },
  );
}

/** The arguments of the call whose opening bracket is before the offset `start`, as written; the rest of the program if
 * the bracket is not closed. */
function argumentsAt({ code, masked }: Program, start: number): string {
  let depth = 1;
  for (let at = start; at < masked.length; at += 1) {
    const char = masked[at] ?? "";
    if ("([{".includes(char)) depth += 1;
    if (")]}".includes(char)) depth -= 1;
    if (depth === 0) return code.slice(start, at);
  }
  return code.slice(start);
}

/** A rule that matches the first call of `pattern`. `target` makes the target of the title from the arguments and the
 * subject (the first group of the pattern), both as written. */
function callRule(pattern: string, verb: () => string, target: (args: string, subject: string) => string): Rule {
  const expression = new RegExp(`(?<![\\w.])${pattern}`);
  return (program) => {
    const found = expression.exec(program.masked);
    if (!found) return null;
    const subject = found[1] ? program.code.slice(found.index, found.index + found[1].length) : "";
    return { verb: verb(), target: target(argumentsAt(program, found.index + found[0].length), subject) };
  };
}

const strings = (text: string): string[] => [...text.matchAll(/(["'])(.*?)\1/g)].map((found) => found[2] ?? "");

/** The target of a grouping: "df by month, year" if the code names the columns as strings, otherwise "df". */
function groupedSubject(subject: string, args: string): string {
  const first = /^\s*(?:by\s*=\s*)?(\[[^\]]*\]|"[^"]*"|'[^']*')/.exec(args)?.[1];
  const columns = first ? strings(first) : [];
  return columns.length > 0 ? trans.__("%1 by %2", subject, columns.join(", ")) : subject;
}

function groupTitle(program: Program): CodeTitle | null {
  return callRule(
    `${SUBJECT}\\.groupby\\(`,
    () => trans.__("Group"),
    (args, subject) => {
      const part = /\[\s*["']([^"']+)["']\s*\]\.dt\.(\w+)/.exec(args);
      return part ? trans.__("%1 by %2 of %3", subject, part[2] ?? "", part[1] ?? "") : groupedSubject(subject, args);
    },
  )(program);
}

function joinTitle(program: Program): CodeTitle | null {
  const merge = callRule(
    "pd\\.(?:merge|concat)\\(",
    () => trans.__("Combine"),
    (args) => {
      const names = [...args.slice(0, 200).matchAll(/^[\s[]*([A-Za-z_]\w*)\s*,\s*([A-Za-z_]\w*)/g)][0];
      return names ? trans.__("%1 and %2", names[1] ?? "", names[2] ?? "") : trans.__("tables");
    },
  )(program);
  return (
    merge ??
    callRule(
      `${SUBJECT}\\.merge\\(`,
      () => trans.__("Combine"),
      (args, subject) => {
        const other = /^\s*([A-Za-z_]\w*)/.exec(args)?.[1];
        return other ? trans.__("%1 and %2", subject, other) : subject;
      },
    )(program)
  );
}

function plotTitle(program: Program): CodeTitle | null {
  const own =
    /(?<![\w.])([A-Za-z_][\w.]*(?:\[[^[\]]*\])?(?:\.groupby\([^()]*\))?(?:\[[^[\]]*\])?(?:\.\w+\(\))?)\.(plot|hist|boxplot)(?:\.(\w+))?\(/;
  const library = /(?<![\w.])(?:plt|ax\w*(?:\[[^\]]*\])?|sns|px)\.(\w+)\(/g;
  let kind = "";
  let subject = "";
  for (const found of program.masked.matchAll(library)) kind ||= CHARTS.get(found[1] ?? "")?.() ?? "";
  const found = own.exec(program.masked);
  if (!kind && found) {
    const args = argumentsAt(program, found.index + found[0].length);
    const named = found[3] ?? /kind\s*=\s*["'](\w+)["']/.exec(args)?.[1] ?? found[2] ?? "";
    kind = CHARTS.get(named)?.() ?? trans.__("a chart");
    const name = program.code.slice(found.index, found.index + (found[1]?.length ?? 0));
    if (/^\w+(\[["'][^"']*["']\])?$/.test(name)) subject = name;
  }
  if (!kind) return null;
  const title = /(?:\.title|\.set_title|title\s*=)\s*\(?\s*(["'])([^"'\n]{3,80})\1/.exec(program.code)?.[2];
  const rest = title ? `: ${title}` : subject && ` ${trans.__("of %1", subject)}`;
  return { verb: trans.__("Draw"), target: `${kind}${rest}` };
}

function trained(program: Program): CodeTitle | null {
  const found = new RegExp(`(?<![\\w.])(${NAME})(\\([^()]*\\))?\\.fit(?:_transform)?\\(`).exec(program.masked);
  if (!found)
    return /np\.polyfit\(/.test(program.masked) ? { verb: trans.__("Fit"), target: trans.__("a polynomial") } : null;
  const name = found[1] ?? "";
  const made = new RegExp(`(?<![\\w.])${name}\\s*=\\s*(?:\\w+\\.)*([A-Z]\\w*)\\(`).exec(program.masked)?.[1];
  return { verb: trans.__("Fit"), target: made ?? name };
}

function writeTitle(program: Program): CodeTitle | null {
  const table = callRule(
    `${SUBJECT}\\.to_(?:csv|excel|json|parquet|feather|pickle)\\(`,
    () => trans.__("Write"),
    (args, subject) => (fileOf(args) ? fileOf(args) : subject),
  );
  const picture = callRule(
    "(?:plt|fig\\w*)\\.savefig\\(",
    () => trans.__("Save the figure"),
    (args) => fileOf(args) && trans.__("as %1", fileOf(args)),
  );
  const handle = /(?<![\w.])open\(/.exec(program.masked);
  const args = handle ? argumentsAt(program, handle.index + handle[0].length) : "";
  if (/["'][wax]b?\+?t?["']/.test(args.split(",").slice(1).join(","))) {
    return { verb: trans.__("Write"), target: fileOf(args) || trans.__("a file") };
  }
  return inFile(table(program)) ?? picture(program);
}

/** The title, if its target is a file name; otherwise null, because for example `to_json()` without a file writes no
 * file but returns a text. */
const inFile = (title: CodeTitle | null): CodeTitle | null => (title && /\.\w+$/.test(title.target) ? title : null);

/** A title for a program that reads data. Null unless the rest of the program shows the data, because otherwise reading
 * is not its purpose. */
function read(program: Program): CodeTitle | null {
  if (
    !/\.(?:head|tail|info|shape|columns|dtypes|read|readlines)\b|open\(|read_\w+\(|^\s*(?:print|display)\(\w+\)/.test(
      tellingLine(program),
    )
  ) {
    return null;
  }
  const table = callRule(
    "pd\\.read_\\w+\\(",
    () => trans.__("Read"),
    (args) => fileOf(args) || argumentOf(args),
  )(program);
  return (
    table ??
    callRule(
      "(?:open|Path)\\(",
      () => trans.__("Read"),
      (args) => fileOf(args) || argumentOf(args),
    )(program)
  );
}

function defined(program: Program): CodeTitle | null {
  const found = [...program.masked.matchAll(/^(?:async\s+)?(def|class)\s+(\w+)/gm)];
  const rest = program.masked.replace(/^(?:(?:async\s+)?def|class|@|[ \t]|import|from|[)\]}]).*$/gm, "").trim();
  if (found.length === 0 || rest) return null;
  return { verb: trans.__("Define"), target: found.map((one) => one[2] ?? "").join(", ") };
}

function importTitle(program: Program): CodeTitle | null {
  const lines = program.masked.split("\n").filter((line) => line.trim());
  const names = lines.map((line) => /^(?:import|from)\s+([\w.]+)/.exec(line)?.[1]);
  if (names.length === 0 || names.some((name) => name === undefined)) return null;
  return { verb: trans.__("Import"), target: [...new Set(names)].join(", ") };
}

/** The name, without its folders, of the file that is the first argument; empty if the first argument is no string. */
function fileOf(args: string): string {
  const path = /^\s*(?:\w+\s*=\s*)?[rf]?(["'])(.*?)\1/.exec(args)?.[2] ?? "";
  return path.split(/[\\/]/).pop() ?? "";
}

const argumentOf = (args: string): string => /^\s*([A-Za-z_][\w.]*)/.exec(args)?.[1] ?? trans.__("a file");

/** The first line that is no import, comment, definition or assignment; else the first that is no import or comment. */
function tellingLine({ code, masked }: Program): string {
  const lines = code.split("\n");
  const plain = masked.split("\n");
  const says = lines.filter((line, at) => line.trim() && !/^\s*(?:#|$)/.test(plain[at] ?? ""));
  const works = says.filter((line) => !/^\s*(?:import|from)\s/.test(line));
  const shows = works.filter((line) => /^\s*(?:print|display)\s*\(/.test(line) || /^[A-Za-z_][\w.]*\(/.test(line));
  return works.length > 1 && shows.length > 0
    ? (shows[0] ?? "")
    : (works[0] ?? says[0] ?? lines.find((line) => line.trim()) ?? "");
}

/** The telling line, behind the head of the loop that contains it: "for i in range(5): print(i)". */
function loopLine(program: Program): string {
  const telling = tellingLine(program);
  const lines = program.code.split("\n");
  const plain = program.masked.split("\n");
  const at = lines.indexOf(telling);
  let indentation = indentationOf(telling);
  let steps = 0;
  for (let above = at - 1; above >= 0 && indentation > 0; above -= 1) {
    const line = plain[above] ?? "";
    if (!line.trim() || indentationOf(line) >= indentation) continue;
    indentation = indentationOf(line);
    steps += 1;
    if (indentation === 0 && /^(?:async\s+)?(?:for|while)\b.*:\s*$/.test(line)) {
      const head = lines[above]?.slice(0, line.trimEnd().length) ?? "";
      return `${head} ${steps > 1 ? "… " : ""}${telling.trim()}`;
    }
  }
  return telling;
}

const indentationOf = (line: string): number => line.length - line.trimStart().length;

function lineAt(code: string, at: number): string {
  const start = code.lastIndexOf("\n", at) + 1;
  const end = code.indexOf("\n", at);
  return code.slice(start, end < 0 ? undefined : end);
}
