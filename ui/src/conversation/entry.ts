/** What stands in the conversation for one turn, and what becomes one. */
import type { Signal } from "@preact/signals";
import type { TurnView } from "../turn/turn";
import type { InputFile } from "../wire/api";
import type { Facts, Medium } from "../wire/events";

export interface VariableAttachment {
  kind: "variable";
  key: string;
  name: string;
  summary: string;
}

/** `part` of it has gone up; `id` is the server's, once all of it has. */
export interface FileAttachment {
  kind: "file";
  key: string;
  name: string;
  size: number;
  id: string;
  part: number;
  failure: string;
}

/** `data` is base64; empty while it is fetched from the server. */
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

/** Who asked what, and the answer as it grows. */
export interface Entry {
  id: string;
  prompt: string;
  cell: string;
  /** Chips: what went along. */
  context: readonly string[];
  /** Pictures and films that went along. */
  media?: readonly Medium[];
  /** Files that went along. */
  inputs?: readonly InputFile[];
  /** All that went along, of a message that this page sent. */
  attached?: readonly Attachment[];
  view: Signal<TurnView>;
}

/** What the composer sends; fields as in the body of `POST turns`. */
export interface Draft {
  prompt: string;
  context?: { title: string; text: string }[];
  media?: { mime: string; data: string }[];
  inputs?: InputFile[];
  chips?: string[];
  options?: Facts;
}

/** Options of a draft that asks in the place of a turn. */
export const replaceOptions = (entry: Entry): Facts => ({
  replaces: entry.id,
  ...(entry.cell ? { cell: entry.cell } : {}),
});

/** The body of `POST turns`. Without a kernel the turn has a sandbox alone. */
export const turnBody = (draft: Draft, session: string | undefined, kernel: string | undefined): Facts => ({
  prompt: draft.prompt,
  context: draft.context ?? [],
  media: draft.media ?? [],
  inputs: (draft.inputs ?? []).map(({ id }) => id),
  answers: ["*"], // a person is here, who can say yes or no
  ...(kernel ? { kernel, where: "draft" } : {}),
  ...(session ? { session } : {}),
  ...draft.options,
});
