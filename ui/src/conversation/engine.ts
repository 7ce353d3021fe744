/** The model that the session talks to: which it is, what else there is, and how far a download is. */
import { computed, signal, type ReadonlySignal } from "@preact/signals";
import { ApiError, type Transport } from "../transport/transport";
import type { Binding } from "../wire/api";
import type { EngineInfo, ModelOffer, Models, PullLine } from "../wire/engine";
import type { Conversation } from "./conversation";
import { catchApiError } from "./catchApiError";

export interface Pulling {
  name: string;
  stage: string;
  /** 0 to 1; null while it can not be told. */
  fraction: number | null;
  message: string;
  failure: string;
}

export class Engine {
  readonly models = signal<Models | null>(null);
  readonly pulling = signal<Pulling | null>(null);
  readonly failure = signal<ApiError | null>(null);
  /** As the server told last: with the binding, or with the list of models. */
  readonly current: ReadonlySignal<EngineInfo | null>;
  /** The model that the next turn needs and this machine does not have. */
  readonly missing: ReadonlySignal<ModelOffer | null>;
  /** What the list of models was asked for: of another one it says nothing. */
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
      return binding ? (binding.model as EngineInfo) : null;
    });
    this.missing = computed(() => {
      const current = this.current.value;
      if (!current?.local) return null;
      return this.models.value?.models.find(({ name, state }) => name === current.model && state === "missing") ?? null;
    });
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

  /** The session where there is no notebook, which has a model of its own. */
  #about(): Binding | string | null {
    const { binding, query, session } = this.conversation;
    return query ? binding.value : (session.value?.id ?? null);
  }

  /** `name`: an engine, a model or empty for the server's own. */
  async choose(name: string): Promise<void> {
    const session = this.conversation.session.value;
    const body = { model: name, ...(session ? { session: session.id } : {}) };
    await catchApiError(this.failure, async () => {
      await this.transport.request("PUT", `engine?${this.conversation.query}`, body);
      await this.load();
    });
    if (!session) await this.conversation.rebind();
  }

  /** The person has said yes to this download. */
  async pull(name: string): Promise<void> {
    const told = (line: PullLine) => {
      this.pulling.value = {
        name,
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

/** The connection may end within a stream, which is no answer with an error. */
const body = (error: unknown) =>
  error instanceof ApiError
    ? error.body
    : { code: "offline", message: "The connection was lost.", hint: "Ask again: it goes on where it was." };
