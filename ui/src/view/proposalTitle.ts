/** The title of the question whether the agent may change a cell, with the cell numbers that the notebook shows. */
import { cellName } from "../turn/cellName";
import type { ProposedChange } from "../turn/cellChanges";
import { trans } from "../translation/translation";

function kindOf(type: string): string {
  if (type === "markdown") return trans.__("Markdown cell");
  return type === "raw" ? trans.__("raw cell") : trans.__("code cell");
}

/** `cells` has the ids of the notebook's cells in their order; empty if they are not known. `isAtCell`: the title is
 * shown at the cell itself. */
export function proposalTitle(change: ProposedChange, cells: readonly string[], isAtCell = false): string {
  const title = titleOf(change, cells, isAtCell); // in some languages it begins with the cell
  return title.charAt(0).toUpperCase() + title.slice(1);
}

function titleOf(change: ProposedChange, cells: readonly string[], isAtCell: boolean): string {
  const name = (id: string): string => {
    const index = cells.indexOf(id);
    return index < 0 ? trans.__("a cell") : cellName(index);
  };
  const place = change.below ? trans.__("below %1", name(change.below)) : trans.__("at the top");
  const cell = isAtCell ? trans.__("this cell") : name(change.cell);
  switch (change.do) {
    case "insert":
      return trans.__("Add a %1 %2?", kindOf(change.type), isAtCell ? trans.__("here") : place);
    case "edit":
      return trans.__("Change %1?", cell);
    case "delete":
      return trans.__("Delete %1?", cell);
    case "move":
      return trans.__("Move %1 %2?", cell, change.below ? place : trans.__("to the top"));
  }
}
