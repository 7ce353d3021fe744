/** The message in the composer: its text, its attachments, and how it runs. The text survives a reload of the page,
 * separately for each notebook and session. */
import { computed, effect, signal, untracked, type ReadonlySignal, type Signal } from "@preact/signals";
import { isAgentCell } from "../notebook/agentCells";
import type { CellView } from "../notebook/notebook";
import { shorten } from "../notebook/shorten";
import type { Close, Transport } from "../transport/transport";
import { trans } from "../translation/translation";
import { askedText, editedPrompt } from "../turn/askedText";
import type { Facts } from "../wire/schema";
import { Attachments } from "./attachments";
import type { Conversation } from "./conversation";
import { replaceOptions, type Attachment, type Draft, type Entry } from "./entry";
import { tabStorage } from "./browserStorage";
import { checksum, readSettledError, writeSettledError } from "./settledErrors";
import type { Where } from "./preferences";

export type Permission = "auto" | "ask" | "deny";
export type { Where } from "./preferences";

const MAX_SOURCE = 8_000;
const MAX_OUTPUT = 4_000;
const MAX_CELLS = 12;
const GONE = "turn_not_found";

/** A part of the notebook that is sent with a message unless the user removes it: the active cell, the selected cells,
 * or the newest error. */
type Side = "cell" | "cells" | "error";

interface SideChip {
  side: Side;
  label: string;
  cells: readonly CellView[];
}

export class ComposerState {
  readonly text = signal("");
  readonly attachments: Attachments;
  /** `off` has the parts of the notebook that the user removed from the message, `wanted` those that the user added
   * with `@`. */
  readonly off = signal<ReadonlySet<Side>>(new Set());
  readonly wanted = signal<ReadonlySet<Side>>(new Set());
  readonly sides: ReadonlySignal<readonly SideChip[]>;
  /** Key of the cell error that the user last sent with a message or removed from one. Later messages contain this
   * error only if the user adds it. */
  readonly #settledError = signal("");
  readonly permission = signal<Permission>("auto");
  readonly where: Signal<Where>;
  readonly enterSends: ReadonlySignal<boolean>;
  readonly sending = signal(false);
  /** Whether files are dragged over the panel. */
  readonly dropping = signal(false);
  /** Where the draft is stored; the key is empty before the first notebook is known. */
  #at = { notebook: "", kernel: "", session: "", key: "" };
  /** The draft: the text of the composer, unless a sent message is being edited. */
  #draft = "";
  #edited: Entry | null = null;
  readonly #ends: Close[];

  constructor(
    transport: Transport,
    readonly conversation: Conversation,
  ) {
    const { values } = conversation.preferences;
    this.where = signal<Where>("draft");
    this.enterSends = computed(() => values.value.sendKey === "enter");
    this.attachments = new Attachments(transport);
    this.sides = computed(() => this.#sides().filter(({ side }) => !this.off.value.has(side)));
    const place = computed(() => values.value.place);
    this.#ends = [
      effect(() => void (this.where.value = conversation.notebook?.apart ? "sandbox" : place.value)),
      effect(() => this.#follow()),
      effect(() => this.#keep(this.text.value)),
      effect(() => this.#edit(conversation.editing.value)),
      effect(() => this.#takeBack(conversation.outgoing.unsent.value)),
      effect(() => this.#settle(conversation.corrections.asked.value)),
    ];
  }

  close(): void {
    for (const end of this.#ends) end();
  }

  swapEnter(): void {
    this.conversation.preferences.setSendKey(this.enterSends.value ? "ctrl-enter" : "enter");
  }

  leaveOut(side: Side): void {
    this.off.value = new Set([...this.off.value, side]);
    this.wanted.value = new Set([...this.wanted.value].filter((other) => other !== side));
    if (side === "error") this.#settleError(errorKey(this.conversation.notebook?.lastError?.value ?? null));
  }

  takeAlong(side: Side): void {
    this.off.value = new Set([...this.off.value].filter((other) => other !== side));
    this.wanted.value = new Set([...this.wanted.value, side]);
  }

  /** Stop sending the newest error with messages if the agent corrects its cell. */
  #settle({ cell }: { cell: string }): void {
    const newest = untracked(() => this.conversation.notebook?.lastError?.value ?? null);
    if (newest && newest.id === cell) this.#settleError(errorKey(newest));
  }

  #settleError(error: string): void {
    this.#settledError.value = error;
    writeSettledError(this.#at.key, error);
  }

  /** Edit the last message that was sent. The edited message replaces it on a new branch. */
  editLast(): boolean {
    const last = this.conversation.entries.value
      .filter((entry) => entry.prompt && !entry.cell && entry.view.value.model)
      .at(-1);
    if (!last || this.text.value) return false;
    this.conversation.editing.value = last;
    return true;
  }

  stopEditing(): void {
    this.conversation.editing.value = null;
  }

  /** Send a message. Returns whether the server accepted it; otherwise the text stays in the composer or returns to
   * it. */
  async send(prompt = this.text.value.trim()): Promise<boolean> {
    if (!prompt) return false;
    if (this.attachments.pending) {
      this.attachments.problem.value = trans.__(
        "A file is still being transferred. Send the message when it has arrived.",
      );
      return false;
    }
    const typed = this.text.value;
    const at = this.#at;
    const error = errorKey(this.conversation.notebook?.lastError?.value ?? null);
    const { editing, notes: noted } = this.conversation;
    const kept = { editing: editing.value, noted: noted.value, attached: this.attachments.all.value };
    const draft = this.#composed(prompt, this.attachments.taken());
    if (prompt === typed.trim()) this.text.value = "";
    editing.value = null;
    noted.value = [];
    this.sending.value = true;
    const shown = { attached: kept.attached };
    const taken = await this.conversation.send(draft, shown).finally(() => (this.sending.value = false));
    if (taken) {
      if (this.#goesOn(at)) this.#settleError(error);
      this.off.value = new Set();
      this.wanted.value = new Set();
    } else if (!this.#goesOn(at)) {
      // Another notebook is current now: store the text as the draft of the notebook that it was written for.
      if (!kept.editing && prompt === typed.trim()) tabStorage.write(at.key, typed);
    } else {
      noted.value = kept.noted;
      this.#giveBack(prompt === typed.trim() ? typed : "", kept.attached, kept.editing);
    }
    return taken;
  }

  /** Return a message that the server did not accept to the composer. If it was to replace a turn that no longer
   * exists, its text becomes a new message. */
  #giveBack(typed: string, attached: readonly Attachment[], edited: Entry | null): void {
    const { editing, failure, message: said } = this.conversation;
    if (edited && failure.value?.body.code !== GONE) {
      editing.value = edited;
      this.text.value = typed || askedText(edited.prompt);
      this.attachments.all.value = attached;
      return;
    }
    this.text.value = joined(typed, this.text.value);
    this.attachments.all.value = [...attached, ...this.attachments.all.value];
    if (!edited) return;
    failure.value = null;
    said.value = trans.__(
      "The message that you edited is no longer in this conversation. You can send your text as a new message.",
    );
  }

  /** Show a sent message and its attachments in place of the draft; null shows the draft again. */
  #edit(entry: Entry | null): void {
    if (entry === this.#edited) return;
    untracked(() => {
      if (!entry) this.attachments.putBack();
      else if (this.#edited) this.attachments.all.value = [];
      else this.attachments.setAside();
      this.#edited = entry;
      this.text.value = entry ? askedText(entry.prompt) : this.#draft;
      if (entry) void this.attachments.takeAgain(entry);
    });
  }

  /** Put messages that never became turns before the current draft. */
  #takeBack(unsent: readonly Entry[]): void {
    if (unsent.length === 0) return;
    untracked(() => {
      const { editing, message: said } = this.conversation;
      this.conversation.outgoing.unsent.value = [];
      const messages = unsent.filter((entry) => !entry.cell && (entry.prompt || entry.media?.length));
      const typed = messages.map((entry) => entry.prompt).join("\n");
      if (editing.value) this.#keepDraft(joined(typed, this.#draft));
      else this.text.value = joined(typed, this.text.value);
      for (const entry of [...messages].reverse()) void this.attachments.takeAgain(entry, editing.value !== null);
      if (messages.length > 0) said.value = trans.__("Messages that were not sent are back in the message field.");
    });
  }

  #composed(prompt: string, attached: readonly Attachment[]): Draft {
    const sides = this.sides.value;
    const variables = attached.filter((one) => one.kind === "variable");
    const files = attached.filter((one) => one.kind === "file" && one.id);
    const images = attached.filter((one) => one.kind === "image" && one.data);
    const { notes: noted, editing } = this.conversation;
    return {
      prompt: editing.value ? editedPrompt(editing.value.prompt, prompt) : prompt,
      context: [
        ...sides.flatMap(({ side, cells }) => cells.map((cell) => note(side, cell))),
        ...variables.map(({ name, summary }) => ({ title: `@${name}`, text: summary || name })),
        ...noted.value,
      ],
      media: images.flatMap((one) => (one.kind === "image" ? [{ mime: one.mime, data: one.data }] : [])),
      inputs: files.flatMap((one) =>
        one.kind === "file" ? [{ id: one.id, name: one.name, mime: "", size: one.size }] : [],
      ),
      chips: [
        ...sides.map(({ label }) => label),
        ...noted.value.map(({ title }) => title),
        ...[...variables, ...files, ...images].map(({ name }) => name),
      ],
      options: { ...this.#how(), ...(editing.value ? replaceOptions(editing.value) : {}) },
    };
  }

  #how(): Facts {
    const kernel = this.conversation.place.value.kernel;
    return {
      permission: this.permission.value,
      where: kernel ? this.conversation.rules.nearest(this.where.value) : "sandbox",
    };
  }

  #sides(): SideChip[] {
    const notebook = this.conversation.notebook;
    const wanted = this.wanted.value;
    const goesAlong = (side: Side) => (cell: CellView) => wanted.has(side) || !isAgentCell(cell.source, cell.metadata);
    const selected = notebook?.selectedCells.value ?? [];
    const cells = selected.filter(goesAlong("cells")).slice(0, MAX_CELLS);
    const [active] = [notebook?.activeCell.value ?? []].flat().filter(goesAlong("cell"));
    const newest = notebook?.lastError?.value ?? null;
    const failed = wanted.has("error") || errorKey(newest) !== this.#settledError.value ? newest : null;
    const chips: SideChip[] = [];
    if (selected.length > 1 && cells.length > 0) {
      const label = cells.length > 1 ? trans.__("%1 selected cells", cells.length) : `cell ${cells[0]?.index ?? 0}`;
      chips.push({ side: "cells", label, cells });
    } else if (active?.source.trim() && active.id !== failed?.id) {
      chips.push({ side: "cell", label: `cell ${active.index}`, cells: [active] });
    }
    if (failed) chips.push({ side: "error", label: `error of cell ${failed.index}`, cells: [failed] });
    return chips;
  }

  #keep(text: string): void {
    if (!this.conversation.editing.peek()) this.#keepDraft(text);
  }

  #keepDraft(text: string): void {
    this.#draft = text;
    tabStorage.write(this.#at.key, text);
  }

  /** Show the draft of the current notebook and session. A draft that was started before its session existed, or whose
   * session was deleted, stays with the notebook, even if the notebook is renamed. */
  #follow(): void {
    const { place, session } = this.conversation;
    const { kernel, path } = place.value;
    const notebook = path || kernel;
    const id = session.value?.id ?? "";
    const before = this.#at;
    const at = { notebook, kernel, session: id, key: `draft ${notebook} ${id}` };
    const same = this.#goesOn(at) && (before.session === "" || id === "");
    this.#at = at;
    if (at.key === before.key) return;
    const settled = this.#settledError.peek();
    if (same && settled) {
      writeSettledError(before.key, "");
      writeSettledError(at.key, settled);
    } else {
      this.#settledError.value = readSettledError(at.key);
    }
    if (same && this.#draft) {
      tabStorage.write(before.key, "");
      tabStorage.write(at.key, this.#draft);
    } else {
      this.#draft = tabStorage.read(at.key);
      this.text.value = this.#draft;
      this.off.value = new Set();
      this.wanted.value = new Set();
    }
  }

  /** Whether this is the current notebook, even under another path. */
  #goesOn({ notebook, kernel }: { notebook: string; kernel: string }): boolean {
    return this.#at.key !== "" && (notebook === this.#at.notebook || (kernel !== "" && kernel === this.#at.kernel));
  }
}

const errorKey = (cell: CellView | null): string =>
  cell ? checksum(JSON.stringify([cell.id, cell.source, cell.output])) : "";

const joined = (...texts: readonly string[]): string => texts.filter(Boolean).join("\n");

function note(side: Side, cell: CellView): { title: string; text: string } {
  const what = {
    cell: "Active cell",
    cells: "Selected cell",
    error: "The newest error, of this cell",
  }[side];
  const output = cell.output ? `\n\nIts output:\n${shorten(cell.output, MAX_OUTPUT)}` : "";
  return {
    title: side === "error" ? `error of cell ${cell.index}` : `cell ${cell.index}`,
    text: `${what}: ${cell.type}, id ${cell.id}\n${shorten(cell.source, MAX_SOURCE)}${output}`,
  };
}
