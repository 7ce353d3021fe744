/** The model of the session: which one it is, which others there are, and the progress of a download. */
import { computed, signal, type ReadonlySignal } from "@preact/signals";
import { ApiError, isApiError, type Transport } from "../transport/transport";
import type { Binding, CurrentEngine, Model, Models, Recommendation, Session, SuitableModel } from "../wire/schema";
import type { PullLine } from "../wire/bodyTypes";
import type { Conversation } from "./conversation";
import { catchApiError } from "./catchApiError";
import { trans } from "../translation/translation";

interface Pulling {
  name: string;
  stage: string;
  /** The fraction that is downloaded, 0 to 1; null if it is unknown. */
  fraction: number | null;
  message: string;
  failure: string;
  /** When the download began, in seconds since the epoch. */
  since: number;
}

/** A model that suits the machine better than the one in use. */
interface BetterModel {
  model: Model;
  suits: SuitableModel;
}

export class Engine {
  readonly models = signal<Models | null>(null);
  readonly pulling = signal<Pulling | null>(null);
  readonly failure = signal<ApiError | null>(null);
  /** The model of the session, as the server sent it last with the binding or with the list of models. */
  readonly current: ReadonlySignal<CurrentEngine | null>;
  /** The model that the next turn needs and that is not on this machine. */
  readonly missing: ReadonlySignal<Model | null>;
  /** Which models suit the machine of the server; null until the list is loaded. */
  readonly recommendation = signal<Recommendation | null>(null);
  /** What the server knows about the memory and the speed of the model in use; null for a model on another machine. */
  readonly suits: ReadonlySignal<SuitableModel | null>;
  readonly better: ReadonlySignal<BetterModel | null>;
  /** The notebook or session that the list of models was requested for. The list is not valid for any other. */
  #of: Binding | string | null = null;
  #asked = 0;

  constructor(
    private readonly transport: Transport,
    private readonly conversation: Conversation,
  ) {
    this.current = computed(() => {
      const binding = conversation.binding.value;
      const models = this.models.value;
      if (models && this.#of === this.#about()) return models.current;
      return binding?.model ?? null;
    });
    this.suits = computed(() => {
      const current = this.current.value;
      const models = this.recommendation.value?.models ?? [];
      return (current?.local && models.find(({ name }) => name === current.model)) || null;
    });
    this.better = computed(() => this.#better());
    this.missing = computed(() => {
      const current = this.current.value;
      if (!current?.local) return null;
      return this.models.value?.models.find(({ name, state }) => name === current.model && state === "missing") ?? null;
    });
  }

  /** Whether this user may download models and choose one. Users who share a server may not. */
  get mayChange(): boolean {
    return this.models.value?.may_change ?? true;
  }

  /** Load which models suit the machine, once for each page. Users who share a server may not read that; they get no
   * error message. */
  async recommend(): Promise<void> {
    if (this.recommendation.value) return;
    await catchApiError(this.failure, async () => {
      try {
        this.recommendation.value = await this.transport.request<Recommendation>("GET", "recommendation");
      } catch (error) {
        if (!isApiError(error) || error.status !== 403) throw error;
      }
    });
  }

  #better(): BetterModel | null {
    const current = this.current.value;
    const wanted = this.recommendation.value?.recommended;
    const suits = this.recommendation.value?.models.find(({ name }) => name === wanted);
    const model = this.models.value?.models.find(({ name }) => name === wanted);
    if (!current?.local || !this.suits.value || !suits || !model || current.model === wanted) return null;
    // The recommended model is of the same family as the smaller ones, so the larger one answers more questions right.
    return suits.memory_bytes > this.suits.value.memory_bytes ? { model, suits } : null;
  }

  async load(): Promise<void> {
    await catchApiError(this.failure, async () => {
      const asked = ++this.#asked;
      const of = this.#about();
      const query = typeof of === "string" ? `session=${encodeURIComponent(of)}` : this.conversation.query;
      const models = await this.transport.request<Models>("GET", `models?${query}`);
      if (asked !== this.#asked) return;
      this.#of = of;
      this.models.value = models;
    });
  }

  /** What the list of models is requested for: the binding of the notebook, or without a notebook the id of the
   * session, which has its own model. */
  #about(): Binding | string | null {
    const { binding, query, session } = this.conversation;
    return query ? binding.value : (session.value?.id ?? null);
  }

  /** Choose the model of the session. `name` is an engine or a model; empty for the default of the server. */
  async choose(name: string): Promise<void> {
    await catchApiError(this.failure, async () => {
      const session = this.conversation.session.value ?? (await this.#begin());
      const body = { model: name, ...(session ? { session: session.id } : {}) };
      await this.transport.request("PUT", `engine?${this.conversation.query}`, body);
      await this.load();
      if (!session) await this.conversation.rebind();
    });
  }

  /** Create the session that the model is chosen for. Null if there is a notebook: the server then creates its
   * session. */
  async #begin(): Promise<Session | null> {
    if (this.conversation.query) return null;
    const made = await this.transport.request<Session>("POST", "sessions", { bind: false });
    await this.conversation.openLoose(made.id);
    return made;
  }

  /** Download a model. Call this only after the user has agreed. */
  async pull(name: string): Promise<void> {
    const since = Date.now() / 1_000;
    const told = (line: PullLine) => {
      this.pulling.value = {
        name,
        since,
        stage: line.stage,
        fraction: line.total ? (line.done ?? 0) / line.total : null,
        message: line.message ?? "",
        failure: line.error ? [line.error.message, line.error.hint].filter(Boolean).join(" ") : "",
      };
    };
    told({ stage: "waiting" });
    try {
      await this.transport.lines?.(`models/${encodeURIComponent(name)}/pull`, { consent: true }, (line) =>
        told(line as PullLine),
      );
      if (!this.pulling.value?.failure) this.pulling.value = null;
      await this.load();
    } catch (error) {
      told({ stage: "failed", error: body(error) });
    }
  }
}

/** The body of the error of a download. If the connection ends within the stream, the error is no ApiError, and the
 * body says that the connection was lost. */
const body = (error: unknown) =>
  error instanceof ApiError
    ? error.body
    : {
        code: "offline",
        message: trans.__("The connection was lost."),
        hint: trans.__("Try again: the download resumes where it stopped."),
      };
