/** A short summary of what a turn changed, from the details of its calls. */
import { type Change, changeOf, type CellChangeKind } from "./cellChanges";
import type { TurnView } from "./turn";
import { trans } from "../translation/translation";

const counted: Record<CellChangeKind, (count: number) => string> = {
  insert: (count) => trans._n("%1 cell added", "%1 cells added", count),
  edit: (count) => trans._n("%1 cell changed", "%1 cells changed", count),
  delete: (count) => trans._n("%1 cell deleted", "%1 cells deleted", count),
  move: (count) => trans._n("%1 cell moved", "%1 cells moved", count),
};

/** What a turn changed, in phrases such as "2 cells changed", "df and 1 other variable" and "1 file"; empty if no
 * change is known. Changes of cells for which `isUndone` returns true are left out. */
export function changeSummary(turn: TurnView, isUndone: (change: Change) => boolean = () => false): string[] {
  const cells = new Map<CellChangeKind, Set<string>>();
  const variables = new Set<string>();
  let files = turn.files.length;
  for (const block of turn.blocks) {
    if (block.kind !== "call") continue;
    files += block.files.length;
    const change = changeOf(block);
    if (change && !isUndone(change)) cells.set(change.do, (cells.get(change.do) ?? new Set()).add(change.cell));
    const names = block.details["variables"];
    if (Array.isArray(names)) for (const name of names) if (typeof name === "string") variables.add(name);
  }
  return [
    ...[...cells].map(([deed, ids]) => counted[deed](ids.size)),
    ...(variables.size > 0 ? [trans.__("set %1", listNames([...variables]))] : []),
    ...(files > 0 ? [trans._n("%1 file", "%1 files", files)] : []),
  ];
}

function listNames(names: string[]): string {
  const more = names.length - 3;
  const first = names.slice(0, 3).join(", ");
  return more > 0 ? trans.__("%1 and %2 more", first, more) : first;
}
