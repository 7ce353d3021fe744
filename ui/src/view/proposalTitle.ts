/** The title of the question about a change of a cell, with the numbers that the notebook shows. */
import { cellName } from "../turn/cellName";
import type { ProposedChange } from "../turn/cellChanges";

const KINDS = new Map([
  ["markdown", "Markdown cell"],
  ["raw", "raw cell"],
]);

/** `cells` are the ids of the cells of the notebook in their order; empty if they are not known. With `isAtCell` the
 * title stands at the cell that it is about. */
export function proposalTitle(change: ProposedChange, cells: readonly string[], isAtCell = false): string {
  const name = (id: string): string => {
    const index = cells.indexOf(id);
    return index < 0 ? "a cell" : cellName(index);
  };
  const place = change.below ? `below ${name(change.below)}` : "at the top";
  const cell = isAtCell ? "this cell" : name(change.cell);
  switch (change.do) {
    case "insert":
      return `Add a ${KINDS.get(change.type) ?? "code cell"} ${isAtCell ? "here" : place}?`;
    case "edit":
      return `Change ${cell}?`;
    case "delete":
      return `Delete ${cell}?`;
    case "move":
      return `Move ${cell} ${change.below ? place : "to the top"}?`;
  }
}
