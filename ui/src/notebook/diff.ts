/** A line diff of two texts: Myers' algorithm ("An O(ND) Difference Algorithm and Its Variations", 1986) finds the
 * shortest one between the common beginning and the common end. Of texts with more than MOST differences, all lines of
 * the first are shown before all lines of the second. */
export interface Line {
  kind: "same" | "gone" | "new";
  text: string;
  /** Line numbers from 1; null on the side without the line. */
  before: number | null;
  after: number | null;
}

/** Maximum number of differences that are searched: time and memory grow with its square. */
const MOST = 1_000;

export function diff(before: string, after: string): Line[] {
  const [a, b] = [lines(before), lines(after)];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail++;
  const [left, right] = [a.slice(head, a.length - tail), b.slice(head, b.length - tail)];
  const found: Line[] = [];
  let [x, y] = [0, 0];
  const add = (kind: Line["kind"], text: string) => {
    found.push({ kind, text, before: kind === "new" ? null : ++x, after: kind === "gone" ? null : ++y });
  };
  for (const text of a.slice(0, head)) add("same", text);
  for (const [kind, text] of script(left, right)) add(kind, text);
  for (const text of a.slice(a.length - tail)) add("same", text);
  return found;
}

/** Keep only the lines within `around` lines of a difference. Each run of removed lines becomes one null. */
export function hunks(all: readonly Line[], around = 3): (Line | null)[] {
  const near = all.map((_, place) => all.slice(Math.max(0, place - around), place + around + 1).some(isChange));
  return all.flatMap((line, place) => (near[place] ? [line] : near[place - 1] || place === 0 ? [null] : []));
}

export function counts(all: readonly Line[]): { gone: number; new: number } {
  return {
    gone: all.filter((line) => line.kind === "gone").length,
    new: all.filter((line) => line.kind === "new").length,
  };
}

const isChange = (line: Line): boolean => line.kind !== "same";
const lines = (text: string): string[] => (text === "" ? [] : text.split("\n"));

function script(a: readonly string[], b: readonly string[]): [Line["kind"], string][] {
  const trace = ends(a, b);
  if (!trace)
    return [...a.map((text) => ["gone", text] as const), ...b.map((text) => ["new", text] as const)].map(pair);
  const back: [Line["kind"], string][] = [];
  let [x, y] = [a.length, b.length];
  for (let d = trace.length - 1; d >= 0; d--) {
    const reached = trace[d] ?? new Map<number, number>();
    const k = x - y;
    const down = k === -d || (k !== d && far(reached, k - 1) < far(reached, k + 1));
    const from = down ? k + 1 : k - 1;
    const [fromX, fromY] = [far(reached, from), far(reached, from) - from];
    while (x > Math.max(0, fromX) && y > Math.max(0, fromY)) {
      back.push(["same", a[--x] ?? ""]);
      y--;
    }
    if (d > 0) back.push(down ? ["new", b[--y] ?? ""] : ["gone", a[--x] ?? ""]);
  }
  return back.reverse();
}

const pair = ([kind, text]: readonly [Line["kind"], string]): [Line["kind"], string] => [kind, text];
const far = (reached: ReadonlyMap<number, number>, k: number): number => reached.get(k) ?? -1;

/** The steps of Myers' search. Element d maps each diagonal k = x - y to the largest x that fewer than d differences
 * reach (x lines of `a`, y lines of `b`). Null if there are more than MOST differences. */
function ends(a: readonly string[], b: readonly string[]): Map<number, number>[] | null {
  const reached = new Map<number, number>([[1, 0]]);
  const trace: Map<number, number>[] = [];
  for (let d = 0; d <= Math.min(a.length + b.length, MOST); d++) {
    trace.push(new Map(reached));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && far(reached, k - 1) < far(reached, k + 1));
      let x = down ? far(reached, k + 1) : far(reached, k - 1) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      reached.set(k, x);
      if (x >= a.length && x - k >= b.length) return trace;
    }
  }
  return null;
}
