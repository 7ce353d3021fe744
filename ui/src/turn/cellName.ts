/** Cells as JupyterLab counts them: from 1. Calls, the model's tools and the document count from 0. */
export const cellName = (index: number): string => `cell ${index + 1}`;

/** Replace the numbers in a reference of the model, such as "3, 5-8", by those that the notebook shows. Ids stay. */
export function shownReference(reference: string): string {
  if (!/^\s*\d+(\s*-\s*\d+)?(\s*,\s*\d+(\s*-\s*\d+)?)*\s*$/.test(reference)) return reference;
  return reference.replace(/\d+/g, (number) => String(Number(number) + 1));
}

/** The title of a note of the context as people read it. The note itself has the numbers of the model's tools, which
 * count from 0, and may name the type and the id of the cell. */
export function shownTitle(title: string): string {
  const found = /^((?:(?:error|output) of |selected in )?cell )(\d+)(?:, \w+, id .*)?$/i.exec(title);
  return found ? `${found[1] ?? ""}${Number(found[2]) + 1}` : title;
}
