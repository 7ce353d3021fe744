/** The names of cells in the panel, which count from 1 as JupyterLab does. Tool calls, the model's tools and the
 * document count from 0. */
import { trans } from "../translation/translation";

/** "cell 3" for the index 2. */
export const cellName = (index: number): string => trans.__("cell %1", index + 1);

/** Replace the numbers in a reference to cells by the model, such as "3, 5-8", by those that the notebook shows ("4,
 * 6-9"). A reference that is an id stays. */
export function shownReference(reference: string): string {
  if (!/^\s*\d+(\s*-\s*\d+)?(\s*,\s*\d+(\s*-\s*\d+)?)*\s*$/.test(reference)) return reference;
  return reference.replace(/\d+/g, (number) => String(Number(number) + 1));
}

/** The title of a note (hidden context that is sent with a message) as the panel shows it. The title in the note has
 * the numbers of the model's tools, which count from 0, and may name the type and the id of the cell. */
export function shownTitle(title: string): string {
  const found = /^((?:(?:error|output) of |selected in )?cell )(\d+)(?:, \w+, id .*)?$/i.exec(title);
  if (!found) return title;
  const text = titleOf((found[1] ?? "").toLowerCase(), cellName(Number(found[2])));
  return /^[A-Z]/.test(title) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
}

function titleOf(kind: string, name: string): string {
  if (kind.startsWith("error")) return trans.__("error of %1", name);
  if (kind.startsWith("output")) return trans.__("output of %1", name);
  return kind.startsWith("selected") ? trans.__("selected in %1", name) : name;
}
