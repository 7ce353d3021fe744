/** Drafts of messages that the notebook's commands send: a prompt, with the cell it is about as context. */
import type { Cell } from "@jupyterlab/cells";
import type { Notebook } from "@jupyterlab/notebook";
import type { Draft } from "../conversation/conversation";
import { shorten } from "../notebook/shorten";
import { trans } from "../translation/translation";
import { hasError, lastFailed, MAX_WORDS, outputsOf, words } from "./outputs";

/** A draft that asks to explain the cell. Null if the cell is empty and has no output. */
export function explainDraft(notebook: Notebook, cell: Cell): Draft | null {
  const about = notes(notebook, cell);
  if (!about) return null;
  const error = hasError(outputsOf(cell));
  return {
    prompt: error ? trans.__("Explain this error.") : trans.__("Explain this cell and what it shows."),
    ...about,
  };
}

/** A draft about the error of the cell. Null if the cell shows none. */
export function fixDraft(notebook: Notebook, cell: Cell): Draft | null {
  const about = hasError(outputsOf(cell)) ? notes(notebook, cell) : null;
  return about && { prompt: trans.__("Fix the error of this cell."), ...about };
}

/** The cell with the newest error. */
export function cellOfLastError(notebook: Notebook): Cell | null {
  return notebook.widgets[lastFailed(notebook.widgets)] ?? null;
}

export function selectionNote(text: string, where: string): NonNullable<Draft["context"]>[number] {
  return { title: `Selected in ${where}`, text: shorten(text, MAX_WORDS) };
}

function notes(notebook: Notebook, cell: Cell): Pick<Draft, "context" | "chips"> | null {
  const source = cell.model.sharedModel.getSource();
  const shown = words(outputsOf(cell));
  if (!source.trim() && !shown) return null;
  const number = notebook.widgets.indexOf(cell);
  const name = `cell ${number}`;
  const context = [
    { title: `Cell ${number}, ${cell.model.type}, id ${cell.model.id}`, text: shorten(source, MAX_WORDS) },
  ];
  if (!shown) return { context, chips: [name] };
  return {
    context: [...context, { title: `Output of cell ${number}`, text: shown }],
    chips: [name, `output of ${name}`],
  };
}
