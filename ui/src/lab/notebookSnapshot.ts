/** The open notebook as the tools describe it to the model: its cells in the file format, with shortened outputs, and
 * the active and selected cells. */
import type { Cell } from "@jupyterlab/cells";
import type { IOutput, MultilineString } from "@jupyterlab/nbformat";
import type { NotebookPanel } from "@jupyterlab/notebook";
import type { ISharedCodeCell } from "@jupyter/ydoc";
import { METADATA_KEY } from "../notebook/agentCells";
import type { Medium } from "../wire/events";
import type { Facts, Json } from "../wire/schema";

const MAX_TEXT = 10_000;
const MAX_OUTPUTS = 100;
/** Limit for all images of one tool call together, in base64 characters. */
const MAX_MEDIA = 16 << 20;
const SEEN = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const TEXTS = ["text/markdown", "text/plain", "text/latex", "application/json"];

export function liveDocument(panel: NotebookPanel): Facts {
  const { content } = panel;
  return {
    path: panel.context.localPath,
    writable: isWritable(panel),
    active: content.activeCell?.model.id ?? "",
    selected: content.selectedCells.map((cell) => cell.model.id),
    cells: content.widgets.map(describeCell),
  };
}

export function isWritable(panel: NotebookPanel): boolean {
  const { context } = panel;
  return context.contentsModel?.writable !== false && !context.model.readOnly;
}

export function describeCell(cell: Cell): Facts {
  const shared = cell.model.sharedModel;
  const own = shared.getMetadata()[METADATA_KEY] as Json | undefined;
  const metadata: Facts = own === undefined ? {} : { metadata: { [METADATA_KEY]: own } };
  const told: Facts = { id: shared.id, cell_type: shared.cell_type, source: shared.getSource(), ...metadata };
  if (shared.cell_type !== "code") return told;
  const code = shared as ISharedCodeCell;
  return {
    ...told,
    execution_count: code.execution_count,
    outputs: code.getOutputs().slice(0, MAX_OUTPUTS).map(describeOutput),
  };
}

/** The images in the outputs; those that exceed MAX_MEDIA are left out. */
export function pictures(outputs: readonly IOutput[]): Medium[] {
  const found = outputs.flatMap((output) => {
    const data = bundle(output);
    const mime = SEEN.find((seen) => data[seen] !== undefined);
    return mime ? [{ mime, data: joinLines(data[mime]).replace(/\s/g, "") }] : [];
  });
  let room = MAX_MEDIA;
  return found.filter(({ data }) => (room -= data.length) >= 0);
}

/** An output as text: plain text is preferred to HTML, and an image is described by its type and size. */
function describeOutput(output: IOutput): Json {
  if (output.output_type === "stream") return { ...(output as Facts), text: shortenText(joinLines(output["text"])) };
  if (output.output_type === "error") {
    const traceback = (output["traceback"] as string[] | undefined) ?? [];
    return { ...(output as Facts), traceback: [shortenText(traceback.join("\n"))] };
  }
  const data = bundle(output);
  const mime = TEXTS.find((text) => data[text] !== undefined);
  const seen = Object.keys(data).filter((name) => name.startsWith("image/"));
  const words = seen.map((name) => `[${name}, ${Math.round((joinLines(data[name]).length * 3) / 4)} bytes]`);
  if (mime) words.push(shortenText(mime === "application/json" ? JSON.stringify(data[mime]) : joinLines(data[mime])));
  else if (words.length === 0) words.push(...Object.keys(data).map((name) => `[${name}]`));
  return { output_type: "display_data", metadata: {}, data: { "text/plain": words.join("\n") } };
}

const bundle = (output: IOutput): Record<string, unknown> =>
  (output["data"] as Record<string, unknown> | undefined) ?? {};

export function joinLines(text: unknown): string {
  const lines = text as MultilineString | undefined;
  return Array.isArray(lines) ? lines.join("") : typeof lines === "string" ? lines : "";
}

/** Shorten a text to MAX_TEXT characters by leaving out its middle. */
function shortenText(text: string): string {
  if (text.length <= MAX_TEXT) return text;
  const half = MAX_TEXT / 2;
  return `${text.slice(0, half)}\n... ${text.length - MAX_TEXT} characters left out ...\n${text.slice(-half)}`;
}
