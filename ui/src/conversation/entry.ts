/** An entry of the conversation, one for each turn, and the draft of a message, which becomes an entry when it is
 * sent. */
import type { Signal } from "@preact/signals";
import type { TurnView } from "../turn/turn";
import type { StoredTurn } from "../wire/bodyTypes";
import type { Facts, InputFile } from "../wire/schema";
import type { Medium } from "../wire/events";
import type { Preferences } from "./preferences";

interface VariableAttachment {
  kind: "variable";
  key: string;
  name: string;
  summary: string;
}

/** `part` is the uploaded fraction, 0 to 1; `id` is the id that the server gives the file, empty until the upload is
 * complete. */
export interface FileAttachment {
  kind: "file";
  key: string;
  name: string;
  size: number;
  id: string;
  part: number;
  failure: string;
}

/** `data` is the image in base64; empty while the image is being fetched from the server. */
export interface ImageAttachment {
  kind: "image";
  key: string;
  name: string;
  size: number;
  mime: string;
  data: string;
  failure: string;
}

export type Attachment = VariableAttachment | FileAttachment | ImageAttachment;

/** A prompt with its attachments, and the growing answer. */
export interface Entry {
  id: string;
  prompt: string;
  cell: string;
  /** Titles of the context that was sent, shown as chips. */
  context: readonly string[];
  /** Images and videos that were sent with the prompt. */
  media?: readonly Medium[];
  /** Files that were sent with the prompt. */
  inputs?: readonly InputFile[];
  /** All attachments, for a message that this page sent. */
  attached?: readonly Attachment[];
  view: Signal<TurnView>;
}

/** What the composer sends; the fields are those in the body of `POST turns`. */
export interface Draft {
  prompt: string;
  context?: { title: string; text: string }[];
  media?: { mime: string; data: string }[];
  inputs?: InputFile[];
  chips?: string[];
  options?: Facts;
}

/** Options of a draft that replaces a turn. */
export const replaceOptions = (entry: Entry): Facts => ({
  replaces: entry.id,
  ...(entry.cell ? { cell: entry.cell } : {}),
});

/** The query that names a notebook in requests. */
export function placeQuery({ kernel, path }: { kernel: string; path: string }): string {
  if (kernel) return `kernel=${encodeURIComponent(kernel)}`;
  return path ? `path=${encodeURIComponent(path)}` : "";
}

/** The body of `POST turns`. A turn without a kernel can only use a sandbox, and has web tools only if it asks for them. */
export const turnBody = (
  draft: Draft,
  session: string | undefined,
  kernel: string | undefined,
  { place, effort, instructions, web }: Preferences & { web?: boolean },
): Facts => ({
  prompt: draft.prompt,
  context: draft.context ?? [],
  media: draft.media ?? [],
  inputs: (draft.inputs ?? []).map(({ id }) => id),
  answers: ["*"], // the user can answer every approval in this panel
  ...(kernel ? { kernel, where: place } : {}),
  ...(effort === "server" ? {} : { effort }),
  ...(instructions.trim() ? { instructions } : {}),
  ...(web ? { web: {} } : {}),
  ...(session ? { session } : {}),
  ...draft.options,
});

/** The prompt of a stored turn and what was sent with it, as fields of an `Entry`. */
export const promptOf = ({ prompt, context, media, inputs }: StoredTurn) => ({ prompt, context, media, inputs });
