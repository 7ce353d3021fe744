/** What a person has around the conversation: the message being written, the sessions, the model, and which sheet lies
 * on top of it. One for each panel. */
import { computed, effect, signal, untracked } from "@preact/signals";
import { ApiError, type Close, type Transport } from "../transport/transport";
import type { KernelVariable, Usage } from "../wire/sessions";
import { Absence, type Piece } from "./absence";
import { ComposerState } from "./composerState";
import type { Conversation } from "./conversation";
import { Engine } from "./engine";
import { FORMATS, Sessions, type Format } from "./sessions";
import { catchApiError } from "./catchApiError";

export type Sheet = "" | "sessions" | "model" | "settings" | "help" | "branches" | "rename" | "import";

/** Something that can not be taken back, before it is done. */
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
  /** Why the variables are not those of now; empty. */
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
        if (loose.value || conversation.binding.value?.model.local) untracked(() => void this.engine.load());
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

  /** Errors of the server are shown as those of the conversation are. */
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

  /** Variables of the sandbox, made again by the code that made them, once the person has said yes. */
  async askToRebuild(): Promise<void> {
    const { session } = this;
    await this.trying(async () => {
      const { pieces } = await this.away.rebuild(session, true);
      this.asking.value = { text: rebuilding(pieces), yes: "Run it again", run: () => this.#rebuild(session) };
    });
  }

  async #rebuild(session: string): Promise<void> {
    this.away.dismiss();
    this.say("The code runs again in the sandbox.");
    const { ran, error } = await this.away.rebuild(session, false);
    this.say(error ? `${ran} pieces ran, then one failed: ${error}` : "The variables of the sandbox are there again.");
  }

  /** Those of the notebook's kernel, as of now if it is idle. */
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

  /** With what the kernel says of it now; its line of the list if it is busy. */
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

  /** How much of the model's context the session takes; a server that can not tell leaves it open. */
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

/** What a person agrees to when code runs again. */
function rebuilding(pieces: readonly Piece[]): string {
  const seconds = Math.ceil(pieces.reduce((sum, piece) => sum + piece.seconds, 0));
  const pieceWords = pieces.length === 1 ? "One piece of code runs" : `${pieces.length} pieces of code run`;
  const effects = pieces.filter((piece) => piece.effects.length > 0).length;
  const beside = effects > 0 ? ` ${effects} of them did more than compute, such as writing files.` : "";
  return `${pieceWords} again in the sandbox; that took about ${seconds} s.${beside}`;
}
