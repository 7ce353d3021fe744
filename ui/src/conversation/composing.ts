/** A message that is being written: its text, what goes along, and how it is to run. The text survives a reload of the
 * page, for each notebook and session by itself. */
import { computed, effect, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { CellView } from "../notebook/notebook";
import { shortened } from "../notebook/shortened";
import type { Close, Transport } from "../transport/transport";
import type { Facts } from "../wire/events";
import { Attachments, type Attachment } from "./attachments";
import { replacing, type Conversation, type Draft } from "./conversation";
import { browser, tab } from "./remembered";

export type Permission = "auto" | "ask" | "deny";
export type Where = "live" | "draft" | "sandbox";

const MAX_SOURCE = 8_000;
const MAX_OUTPUT = 4_000;
const MAX_CELLS = 12;
const ENTER = "enter makes a new line";

/** What of the notebook goes along unless it is taken off. */
export type Side = "cell" | "cells" | "error";

export interface SideChip {
  side: Side;
  label: string;
  cells: readonly CellView[];
}

export class Composing {
  readonly text = signal("");
  readonly attachments: Attachments;
  /** Those that the person took off. */
  readonly off = signal<ReadonlySet<Side>>(new Set());
  readonly sides: ReadonlySignal<readonly SideChip[]>;
  readonly permission = signal<Permission>("auto");
  readonly where: Signal<Where>;
  readonly enterSends = signal(!browser.read(ENTER));
  readonly sending = signal(false);
  /** Where the draft is kept; of no notebook before the first. */
  #at = { notebook: "", kernel: "", session: "", key: "" };
  /** The draft: what is typed, unless a message that was sent is edited. */
  #draft = "";
  readonly #ends: Close[];

  constructor(
    transport: Transport,
    readonly conversation: Conversation,
  ) {
    this.where = signal<Where>(conversation.notebook?.apart ? "sandbox" : "live");
    this.attachments = new Attachments(transport);
    this.sides = computed(() => this.#sides().filter(({ side }) => !this.off.value.has(side)));
    this.#ends = [
      effect(() => this.#follow()),
      effect(() => this.#keep(this.text.value)),
      effect(() => {
        this.text.value = conversation.editing.value?.prompt ?? this.#draft;
      }),
    ];
  }

  close(): void {
    for (const end of this.#ends) end();
  }

  swapEnter(): void {
    this.enterSends.value = !this.enterSends.value;
    browser.write(ENTER, this.enterSends.value ? "" : "1");
  }

  leaveOut(side: Side): void {
    this.off.value = new Set([...this.off.value, side]);
  }

  takeAlong(side: Side): void {
    this.off.value = new Set([...this.off.value].filter((other) => other !== side));
  }

  /** Of what was sent last, into the composer; what is sent then stands in its place, on a branch. */
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

  /** What is not taken by the server stays, or comes back, as it was typed. */
  async send(prompt = this.text.value.trim()): Promise<boolean> {
    if (!prompt || this.attachments.uploading) return false;
    const typed = this.text.value;
    const at = this.#at;
    const { editing, noted } = this.conversation;
    const kept = { editing: editing.value, noted: noted.value, attached: this.attachments.all.value };
    const draft = this.#composed(prompt, this.attachments.taken());
    if (prompt === typed.trim()) this.text.value = "";
    editing.value = null;
    noted.value = [];
    this.sending.value = true;
    const taken = await this.conversation.send(draft).finally(() => (this.sending.value = false));
    if (taken) {
      this.off.value = new Set();
    } else if (!this.#goesOn(at)) {
      // Another notebook is in front: there it is found again.
      if (!kept.editing && prompt === typed.trim()) tab.write(at.key, typed);
    } else {
      editing.value = kept.editing;
      if (kept.editing) this.text.value = typed;
      else if (prompt === typed.trim()) this.text.value = [typed, this.text.value].filter(Boolean).join("\n");
      noted.value = kept.noted;
      this.attachments.all.value = [...kept.attached, ...this.attachments.all.value];
    }
    return taken;
  }

  #composed(prompt: string, attached: readonly Attachment[]): Draft {
    const sides = this.sides.value;
    const variables = attached.filter((one) => one.kind === "variable");
    const files = attached.filter((one) => one.kind === "file" && one.id);
    const images = attached.filter((one) => one.kind === "image");
    const { noted, editing } = this.conversation;
    return {
      prompt,
      context: [
        ...sides.flatMap(({ side, cells }) => cells.map((cell) => note(side, cell))),
        ...variables.map(({ name, summary }) => ({ title: `@${name}`, text: summary || name })),
        ...noted.value,
      ],
      media: images.map(({ mime, data }) => ({ mime, data })),
      inputs: files.flatMap((file) => (file.kind === "file" ? [file.id] : [])),
      chips: [
        ...sides.map(({ label }) => label),
        ...noted.value.map(({ title }) => title),
        ...[...variables, ...files, ...images].map(({ name }) => name),
      ],
      options: { ...this.#how(), ...(editing.value ? replacing(editing.value) : {}) },
    };
  }

  #how(): Facts {
    const kernel = this.conversation.place.value.kernel;
    return { permission: this.permission.value, where: kernel ? this.where.value : "sandbox" };
  }

  #sides(): SideChip[] {
    const notebook = this.conversation.notebook;
    const active = notebook?.activeCell.value ?? null;
    const selected = notebook?.selectedCells.value ?? [];
    const failed = notebook?.lastError?.value ?? null;
    const chips: SideChip[] = [];
    if (selected.length > 1) {
      const cells = selected.slice(0, MAX_CELLS);
      chips.push({ side: "cells", label: `${cells.length} selected cells`, cells });
    } else if (active?.source.trim() && active.id !== failed?.id) {
      chips.push({ side: "cell", label: `cell ${active.index}`, cells: [active] });
    }
    if (failed) chips.push({ side: "error", label: `error of cell ${failed.index}`, cells: [failed] });
    return chips;
  }

  #keep(text: string): void {
    if (this.conversation.editing.peek()) return;
    this.#draft = text;
    tab.write(this.#at.key, text);
  }

  /** The draft of the notebook and session that are shown now. One that was begun before its session, or whose session
   * was deleted, goes with the notebook, also when that gets another name. */
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
    if (same && this.#draft) {
      tab.write(before.key, "");
      tab.write(at.key, this.#draft);
    } else {
      this.#draft = tab.read(at.key);
      this.text.value = this.#draft;
      this.off.value = new Set();
    }
  }

  /** Whether that is the notebook in front, whatever it is called. */
  #goesOn({ notebook, kernel }: { notebook: string; kernel: string }): boolean {
    return this.#at.key !== "" && (notebook === this.#at.notebook || (kernel !== "" && kernel === this.#at.kernel));
  }
}

function note(side: Side, cell: CellView): { title: string; text: string } {
  const what = { cell: "Active cell", cells: "Selected cell", error: "The newest error, of this cell" }[side];
  const output = cell.output ? `\n\nIts output:\n${shortened(cell.output, MAX_OUTPUT)}` : "";
  return {
    title: side === "error" ? `error of cell ${cell.index}` : `cell ${cell.index}`,
    text: `${what}: ${cell.type}, id ${cell.id}\n${shortened(cell.source, MAX_SOURCE)}${output}`,
  };
}
