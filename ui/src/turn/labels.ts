/** Labels of tool calls and turns, and formats for sizes and times. A tool that is not known here is shown by its own
 * name. */
import type { CallBlock, TurnView } from "./turn";
import { codeTitle } from "./codeTitle";
import { formatNumber, trans } from "../translation/translation";
import { shownReference } from "./cellName";
import { removeInvisible } from "./invisibleCharacters";

export type Kind = "read" | "run" | "edit" | "file" | "web" | "tool";

interface Phrase {
  kind: Kind;
  verb: string;
  target: string;
}

/** A lookup for names from a model or a server. Unlike an object, a map has no inherited keys such as `constructor`. */
export function lookupTable<Row>(rows: Record<string, Row>): ReadonlyMap<string, Row> {
  return new Map(Object.entries(rows));
}

type Row = [Kind, () => string, ...string[]];

/** For each tool: its kind, its verb, and the names of the arguments that may contain its target. The first of these
 * arguments that a call has is used. */
const TOOLS = lookupTable<Row>({
  python: ["run", () => trans.__("Run"), "code"],
  reset_python: ["run", () => trans.__("Restart Python")],
  run_cell: ["run", () => trans.__("Run cell"), "cell"],
  run_cells: ["run", () => trans.__("Run cells"), "cells"],
  running: ["run", () => trans.__("Look at running code"), "job"],
  shell: ["run", () => trans.__("Run in the shell"), "commands"],
  insert_cell: ["edit", () => trans.__("Insert cell"), "source"],
  edit_cell: ["edit", () => trans.__("Edit cell"), "cell"],
  delete_cell: ["edit", () => trans.__("Delete cell"), "cell"],
  move_cell: ["edit", () => trans.__("Move cell"), "cell"],
  notebook_cells: ["read", () => trans.__("List cells")],
  read_cells: ["read", () => trans.__("Read cells"), "cells"],
  variables: ["read", () => trans.__("Look at variables"), "name"],
  last_error: ["read", () => trans.__("Read the last error")],
  recall: ["read", () => trans.__("Search earlier conversations"), "words", "turn"],
  list_files: ["file", () => trans.__("List files")],
  read_file: ["file", () => trans.__("Read file"), "path", "file_id"],
  surface_outputs: ["file", () => trans.__("Show files"), "outputs", "names"],
  read_skill: ["file", () => trans.__("Read skill"), "name", "skill"],
  web_search: ["web", () => trans.__("Search the web"), "query"],
  fetch_page: ["web", () => trans.__("Read page"), "url"],
});

/** Tools whose target is a reference to cells. */
const OF_CELLS = new Set(["run_cell", "run_cells", "edit_cell", "delete_cell", "move_cell", "read_cells"]);

/** Tools that only read. */
const READING = new Set([
  "notebook_cells",
  "read_cells",
  "variables",
  "last_error",
  "running",
  "recall",
  "list_files",
  "read_file",
  "read_skill",
]);

/** Words for the place where a call runs. A narrow layout may omit `article` and show only `noun`. */
const PLACES = lookupTable<() => { article: string; noun: string }>({
  live: () => ({ article: trans.__("in your"), noun: trans.__("kernel") }),
  draft: () => ({ article: trans.__("in a"), noun: trans.__("draft") }),
  sandbox: () => ({ article: trans.__("in the"), noun: trans.__("sandbox") }),
  client: () => ({ article: trans.__("in the open"), noun: trans.__("notebook") }),
  caller: () => ({ article: trans.__("at the"), noun: trans.__("caller") }),
});

const STATUS = lookupTable<() => string>({
  running: () => trans.__("running"),
  waiting: () => trans.__("needs your answer"),
  offered: () => trans.__("waits"),
  returned: () => trans.__("returned to the caller"),
  success: () => trans.__("done"),
  error: () => trans.__("failed"),
  denied: () => trans.__("denied"),
  timeout: () => trans.__("took too long"),
  interrupted: () => trans.__("stopped"),
});

const STATES = lookupTable<() => string>({
  open: () => trans.__("Working"),
  committed: () => trans.__("Done"),
  cancelled: () => trans.__("Stopped"),
  failed: () => trans.__("Failed"),
  interrupted: () => trans.__("Interrupted"),
} satisfies Record<TurnView["state"], () => string>);

const TARGET = 200;

export const isReading = (call: CallBlock): boolean => READING.has(call.name) && call.status === "success";
export const placeOf = (where: string): { article: string; noun: string } | null => PLACES.get(where)?.() ?? null;
/** The status of a call in words. A denied edit of a cell is called "rejected", because its buttons are Accept and
 * Reject; other calls are allowed or denied. */
export const statusOf = ({ status, name }: CallBlock): string =>
  status === "denied" && kindOf(name) === "edit" ? trans.__("rejected") : (STATUS.get(status)?.() ?? status);
export const stateOf = (turn: TurnView): string => STATES.get(turn.state)?.() ?? turn.state;

export const kindOf = (name: string): Kind => TOOLS.get(name)?.[0] ?? "tool";
export const verbOf = (name: string): string => TOOLS.get(name)?.[1]() ?? name;

/** A phrase for what a call does. A call of `python` has a title that is derived from its code, but while it waits for
 * an approval it is named by the code itself. `cells` has the ids of the notebook's cells in their order: a model may
 * name a cell by its id, and the phrase has its number. */
export function callPhrase(call: CallBlock, cells: readonly string[] = []): Phrase {
  const code = call.arguments["code"];
  if (call.name === "python" && typeof code === "string" && (!call.approval || call.approval.decision)) {
    const { verb, target } = codeTitle(removeInvisible(call.approval?.edited ?? code));
    return { kind: "run", verb, target };
  }
  const known = TOOLS.get(call.name);
  if (!known) return { kind: "tool", verb: call.name, target: firstOf(Object.values(call.arguments)) };
  const [kind, verb, ...names] = known;
  const target = firstOf(names.map((name) => call.arguments[name]));
  if (!OF_CELLS.has(call.name)) return { kind, verb: verb(), target };
  const index = cells.indexOf(target);
  return { kind, verb: verb(), target: index >= 0 ? String(index + 1) : shownReference(target) };
}

/** A line of a result that tells the model how many images the user sees. */
const SHOWN_IMAGES = /^\[\d+ (?:figure|image)\(s\) shown\](?:\n|$)/gm;

/** The result of a call without notes for the model about its images, which the panel shows. */
export const resultText = ({ result, media }: CallBlock): string =>
  media.length > 0 ? result.replace(SHOWN_IMAGES, "").trimEnd() : result;

const UNREAD = /^Cell \d+ \(\S*\) (has changed since you read it|was not read by you yet), so nothing was done\./;

const GONE = /^Cell \S+ is gone; look at notebook_cells/;
const CHANGED = /^Cell \d+ \(\S*\) was changed meanwhile, so nothing was done\./;

/** Why a call failed, in one line: the last line of its result. Results that are instructions for the model are
 * replaced by a sentence for the user. */
export function failureText(result: string): string {
  const [, why] = UNREAD.exec(result) ?? [];
  if (why === "was not read by you yet")
    return trans.__("The agent had not read the cell, so it was not changed. The agent can try again.");
  if (why)
    return trans.__("The cell has changed since the agent read it, so it was not changed. The agent can try again.");
  if (GONE.test(result)) return trans.__("The cell has been deleted, so nothing was changed.");
  if (CHANGED.test(result)) return trans.__("The cell has been changed, so its text stays.");
  return result.trimEnd().split("\n").at(-1) ?? "";
}

/** A label for a call of which only the tool and the place are known: "Edit cell in the open notebook". */
export function toolLabel(name: string, where: string): string {
  const place = placeOf(where);
  return [verbOf(name), place && `${place.article} ${place.noun}`].filter(Boolean).join(" ");
}

/** A label for a call: "Run total = 42 in your kernel". */
export function callLabel(call: CallBlock, cells: readonly string[] = []): string {
  const { verb, target } = callPhrase(call, cells);
  const place = placeOf(call.where);
  return [verb, target, place && `${place.article} ${place.noun}`].filter(Boolean).join(" ");
}

/** A duration in words: 0.04 s, 3.2 s, 1 min 5 s; empty if it is unknown (0). */
export function formatDuration(seconds: number): string {
  if (!(seconds > 0)) return "";
  const fixed = (value: number, digits: number): string =>
    formatNumber(value, { minimumFractionDigits: digits, maximumFractionDigits: digits });
  if (seconds < 0.095) return `${fixed(Math.max(0.01, seconds), 2)} s`;
  if (seconds < 9.95) return `${fixed(seconds, 1)} s`;
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  if (whole < 3_600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3_600)} h ${Math.floor((whole % 3_600) / 60)} min`;
}

export function formatBytes(size: number): string {
  if (size < 1_000) return trans._n("%1 byte", "%1 bytes", size);
  const units = ["kB", "MB", "GB", "TB"];
  let scaled = size / 1_000;
  let unit = 0;
  while (scaled >= 999.5 && unit < units.length - 1) {
    scaled /= 1_000;
    unit += 1;
  }
  const digits = scaled < 10 ? 1 : 0;
  const number = formatNumber(scaled, { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return `${number} ${units[unit] ?? ""}`;
}

function firstOf(values: readonly unknown[]): string {
  for (const value of values) {
    const text = Array.isArray(value) ? value.map(plain).join(", ") : plain(value);
    const line = text.split("\n").find((one) => one.trim());
    if (line) return removeInvisible(line).trim().slice(0, TARGET);
  }
  return "";
}

function plain(value: unknown): string {
  if (typeof value === "string") return value;
  return typeof value === "number" ? String(value) : "";
}
