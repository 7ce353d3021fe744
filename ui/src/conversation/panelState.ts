/** The state of one panel around its conversation: the composer, the sessions, the model, and which sheet is open. */
import { computed, effect, signal, untracked } from "@preact/signals";
import { ApiError, type Close, type Transport } from "../transport/transport";
import type { KernelVariable, Usage } from "../wire/schema";
import { Absence, type Piece } from "./missedEvents";
import { ComposerState } from "./composerState";
import type { Conversation } from "./conversation";
import { Engine } from "./modelChoice";
import { FORMATS, Sessions, type Format } from "./sessions";
import { catchApiError } from "./catchApiError";
import { trans } from "../translation/translation";

export type Sheet = "" | "sessions" | "model" | "settings" | "help" | "branches" | "rename" | "import";

/** A confirmation before an action that cannot be undone. */
export interface Question {
  text: string;
  yes: string;
  run: () => Promise<void>;
}

export class Desk {
  readonly composing: ComposerState;
  readonly sessions: Sessions;
  readonly engine: Engine;
  readonly away: Absence;
  readonly sheet = signal<Sheet>("");
  readonly asking = signal<Question | null>(null);
  readonly usage = signal<Usage | null>(null);
  readonly variables = signal<readonly KernelVariable[]>([]);
  /** Why the list of variables is out of date; empty if it is current. */
  readonly variablesProblem = signal("");
  readonly #transport: Transport;
  readonly #ends: Close[];

  constructor(
    transport: Transport,
    readonly conversation: Conversation,
  ) {
    this.#transport = transport;
    this.composing = new ComposerState(transport, conversation);
    this.sessions = new Sessions(transport, conversation);
    this.engine = new Engine(transport, conversation);
    this.away = new Absence(transport, conversation);
    const loose = computed(() => (conversation.query ? "" : (conversation.session.value?.id ?? "")));
    this.#ends = [
      () => this.composing.close(),
      () => this.away.close(),
      effect(() => {
        const id = conversation.session.value?.id ?? "";
        const atRest = conversation.running.value.length === 0;
        if (atRest) untracked(() => void this.#measure(id));
      }),
      effect(() => {
        const chosen = loose.value || conversation.binding.value?.model.local;
        if (chosen || !conversation.notebook) untracked(() => void this.engine.load());
      }),
    ];
  }

  close(): void {
    for (const end of this.#ends) end();
    void this.sessions.flush();
  }

  /** Id of the session that is shown; empty without one. */
  get session(): string {
    return this.conversation.session.value?.id ?? "";
  }

  open(sheet: Sheet): void {
    this.asking.value = null;
    this.sheet.value = sheet;
  }

  say(text: string): void {
    this.conversation.message.value = text;
  }

  /** Run work. An error of the server goes into `conversation.failure`, which the panel shows. */
  async trying(work: () => Promise<void>): Promise<void> {
    await catchApiError(this.conversation.failure, work);
  }

  async stop(): Promise<void> {
    await this.conversation.stop();
  }

  async download(format: Format): Promise<void> {
    const { session } = this.conversation;
    if (!session.value) return;
    const document = await this.sessions.exported(session.value.id, format);
    const link = window.document.createElement("a");
    link.href = URL.createObjectURL(document);
    link.download =
      (session.value.title.replace(/[^\p{L}\p{N} ._-]/gu, "").trim() || "session") + FORMATS[format].suffix;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  /** Ask the user whether to run the code again that created the variables of the sandbox. */
  async askToRebuild(): Promise<void> {
    const { session } = this;
    await this.trying(async () => {
      const { pieces } = await this.away.rebuild(session, true);
      this.asking.value = {
        text: rebuildQuestion(pieces),
        yes: trans.__("Run it again"),
        run: () => this.#rebuild(session),
      };
    });
  }

  async #rebuild(session: string): Promise<void> {
    this.away.dismiss();
    this.say(trans.__("The code is running again in the sandbox."));
    const { ran, error } = await this.away.rebuild(session, false);
    this.say(
      error
        ? trans.__("%1 pieces of code ran, then one failed: %2", ran, error)
        : trans.__("The variables of the sandbox are restored."),
    );
  }

  /** Load the variables of the notebook's kernel; they are current if the kernel is idle. */
  async lookAtVariables(): Promise<void> {
    const { query } = this.conversation;
    if (!this.conversation.place.value.kernel) return;
    try {
      const { variables, problem } = await this.#transport.request<{ variables: KernelVariable[]; problem: string }>(
        "GET",
        `binding/variables?${query}`,
      );
      if (query !== this.conversation.query) return;
      if (!problem) this.variables.value = variables;
      this.variablesProblem.value = problem;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.variablesProblem.value = error.message;
    }
  }

  /** Attach a variable with its current summary, or with the one in the list if the kernel is busy. */
  async attachVariable(name: string): Promise<void> {
    const line = this.variables.value.find((variable) => variable.name === name)?.summary ?? "";
    this.composing.attachments.variable(name, line);
    const query = `binding/variables?${this.conversation.query}&name=${encodeURIComponent(name)}`;
    try {
      const { variables } = await this.#transport.request<{ variables: KernelVariable[] }>("GET", query);
      const attached = this.composing.attachments.all.value.some((one) => one.key === `variable ${name}`);
      if (variables[0] && attached) this.composing.attachments.variable(name, variables[0].summary);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
    }
  }

  /** Load how much of the model's context the session uses. An error leaves the value unknown. */
  async #measure(id: string): Promise<void> {
    if (!id) {
      this.usage.value = null;
      return;
    }
    try {
      const usage = await this.sessions.usage(id);
      if (id === this.session) this.usage.value = usage;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
    }
  }
}

/** The text that asks the user before code runs again to restore the variables of the sandbox. */
function rebuildQuestion(pieces: readonly Piece[]): string {
  const seconds = Math.ceil(pieces.reduce((sum, piece) => sum + piece.seconds, 0));
  const effects = pieces.filter((piece) => piece.effects.length > 0).length;
  const runs = trans._n(
    "One piece of code runs again in the sandbox; that took about %2 s.",
    "%1 pieces of code run again in the sandbox; that took about %2 s.",
    pieces.length,
    seconds,
  );
  const beside =
    effects > 0 &&
    trans._n(
      "%1 of them had side effects, such as writing files.",
      "%1 of them had side effects, such as writing files.",
      effects,
    );
  return [runs, beside].filter(Boolean).join(" ");
}
