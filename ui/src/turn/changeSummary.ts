/** A short summary of what a turn changed, from the details of its calls. */
import { changeOf, type CellChangeKind } from "./cellChanges";
import type { TurnView } from "./turn";
import { pluralize } from "./labels";

const DONE: Record<CellChangeKind, string> = { insert: "added", edit: "changed", delete: "deleted", move: "moved" };

/** "2 cells changed", "df and 1 other variable", "1 file"; empty if no change is known. */
export function changeSummary(turn: TurnView): string[] {
  const cells = new Map<string, Set<string>>();
  const variables = new Set<string>();
  let files = turn.files.length;
  for (const block of turn.blocks) {
    if (block.kind !== "call") continue;
    files += block.files.length;
    const change = changeOf(block);
    if (change) cells.set(DONE[change.do], (cells.get(DONE[change.do]) ?? new Set()).add(change.cell));
    const names = block.details["variables"];
    if (Array.isArray(names)) for (const name of names) if (typeof name === "string") variables.add(name);
  }
  return [
    ...[...cells].map(([done, ids]) => `${pluralize(ids.size, "cell")} ${done}`),
    ...(variables.size > 0 ? [`set ${named([...variables])}`] : []),
    ...(files > 0 ? [pluralize(files, "file")] : []),
  ];
}

function named(names: string[]): string {
  const more = names.length - 3;
  return names.slice(0, 3).join(", ") + (more > 0 ? ` and ${more} more` : "");
}
