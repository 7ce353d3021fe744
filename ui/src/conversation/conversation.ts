/** The session that the panel shows, and what one does in it. Holds signals; knows nothing of how they are drawn. */
import { batch, computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { NotebookHost } from "../notebook/notebook";
import type { Close, Transport } from "../transport/transport";
import { ApiError } from "../transport/transport";
import { Frames } from "../turn/frames";
import { after, emptyTurn, running, type TurnView } from "../turn/turn";
import type { Binding, Session, StartedTurn, StoredTurn, StoredTurns } from "../wire/api";
import type { Facts } from "../wire/events";
import type { News } from "../wire/socket";

const PAGE = 20;

/** What stands in the conversation for one turn: who asked what, and the answer as it grows. */
export interface Entry {
  id: string;
  prompt: string;
  cell: string;
  /** Chips: what went along. */
  context: readonly string[];
  view: Signal<TurnView>;
}

/** What the composer sends; fields as in the body of `POST turns`. */
export interface Draft {
  prompt: string;
  context?: { title: string; text: string }[];
  media?: { mime: string; data: string }[];
  inputs?: string[];
  chips?: string[];
  options?: Facts;
}

export class Conversation {
  readonly session = signal<Session | null>(null);
  readonly binding = signal<Binding | null>(null);
  readonly entries = signal<readonly Entry[]>([]);
  readonly older = signal(false);
  readonly loading = signal(false);
  readonly failure = signal<ApiError | null>(null);
  readonly running: ReadonlySignal<readonly Entry[]>;
  /** The turn whose prompt is in the composer to be changed: what is sent then takes its place, on a branch. */
  readonly editing = signal<Entry | null>(null);
  /** The turn that this page asked for last. */
  readonly asked = signal("");
  readonly #transport: Transport;
  #adopting = "";
  #ends: Close[] = [];
  #follows = new Map<string, Close>();
  readonly #frames = new Frames();

  constructor(
    transport: Transport,
    readonly notebook: NotebookHost | null,
  ) {
    this.#transport = transport;
    this.running = computed(() => this.entries.value.filter((entry) => running(entry.view.value)));
  }

  /** Shows the session of a kernel's notebook, or of a notebook without a kernel. */
  async bind(kernel: string, path: string): Promise<void> {
    this.#leave();
    const query = kernel ? `kernel=${encodeURIComponent(kernel)}` : `path=${encodeURIComponent(path)}`;
    await this.#try(async () => {
      this.binding.value = await this.#transport.request<Binding>("GET", `binding?${query}`);
      if (kernel) this.#ends.push(this.#transport.watch({ kernel }, this.#heard));
      if (this.binding.value.session) await this.open(this.binding.value.session.id);
    });
  }

  async open(session: string): Promise<void> {
    await this.#try(async () => {
      this.loading.value = true;
      const [found, page] = await Promise.all([
        this.#transport.request<Session>("GET", `sessions/${session}`),
        this.#transport.request<StoredTurns>("GET", `sessions/${session}/turns?limit=${PAGE}`),
      ]);
      batch(() => {
        this.session.value = found;
        this.older.value = page.older;
        this.entries.value = page.turns.map((turn) => this.#stored(turn));
      });
      this.#ends.push(this.#transport.watch({ session }, this.#heard));
    });
    this.loading.value = false;
  }

  async loadOlder(): Promise<void> {
    const first = this.entries.value[0];
    const session = this.session.value;
    if (!first || !session || !this.older.value) return;
    const query = `limit=${PAGE}&before=${first.id}`;
    const page = await this.#transport.request<StoredTurns>("GET", `sessions/${session.id}/turns?${query}`);
    batch(() => {
      this.older.value = page.older;
      this.entries.value = [...page.turns.map((turn) => this.#stored(turn)), ...this.entries.value];
    });
  }

  async send(draft: Draft): Promise<void> {
    const bound = this.notebook?.bound.value ?? null;
    const session = this.session.value;
    const body: Facts = {
      prompt: draft.prompt,
      context: draft.context ?? [],
      media: draft.media ?? [],
      inputs: draft.inputs ?? [],
      answers: ["*"], // a person is here, who can say yes or no
      ...(bound?.kernel ? { kernel: bound.kernel, where: "live" } : {}),
      ...(session ? { session: session.id } : {}),
      ...draft.options,
    };
    await this.#try(async () => {
      const started = await this.#transport.request<StartedTurn>("POST", "turns", body);
      this.#add(started.turn, started.session, { prompt: draft.prompt, context: draft.chips ?? [] });
      this.asked.value = started.turn;
      if (!session) await this.#adopt(started.session);
    });
  }

  /** Asks it again in its place, on a branch; the answer that is there stays on its own. */
  async retry(entry: Entry): Promise<void> {
    await this.send({ prompt: entry.prompt, chips: [...entry.context], options: replacing(entry) });
  }

  /** Shows another branch of the session. Rejects with ApiError. */
  async toBranch(name: string): Promise<void> {
    const session = this.session.value;
    if (!session) return;
    await this.#transport.request("PUT", `sessions/${session.id}/branch`, { name });
    await this.open(session.id);
  }

  async stop(): Promise<void> {
    await Promise.all(
      this.running.value.map((entry) => this.#transport.request("POST", `turns/${entry.id}/cancel`, {})),
    );
  }

  async decide(
    approval: string,
    body: { decision: "approve" | "deny"; remember?: string; shown: string; message?: string },
  ): Promise<void> {
    await this.#transport.request("POST", `agent/approvals/${approval}`, body);
  }

  close(): void {
    this.#leave();
  }

  async #adopt(session: string): Promise<void> {
    if (this.#adopting === session) return;
    this.#adopting = session;
    this.session.value = await this.#transport.request<Session>("GET", `sessions/${session}`);
    this.#ends.push(this.#transport.watch({ session }, this.#heard));
  }

  #leave(): void {
    for (const end of [...this.#ends, ...this.#follows.values()]) end();
    this.#ends = [];
    this.#adopting = "";
    this.#follows.clear();
    this.#frames.close();
    batch(() => {
      this.session.value = null;
      this.binding.value = null;
      this.entries.value = [];
      this.older.value = false;
      this.failure.value = null;
    });
  }

  readonly #heard = (news: News): void => {
    const session = this.session.value;
    if (news.type === "turn.opened" && (!session || news.session === session.id)) {
      if (!session) void this.#adopt(news.session);
      this.#add(news.turn, news.session, { cell: news.cell });
    }
  };

  #add(turn: string, session: string, about: Partial<Entry>): void {
    const known = this.entries.value.find((entry) => entry.id === turn);
    if (known) {
      // The server's news of it was faster than its answer.
      if (about.prompt) {
        this.entries.value = this.entries.value.map((entry) => (entry === known ? { ...known, ...about } : entry));
      }
      return;
    }
    const view = signal(emptyTurn(turn, session));
    this.entries.value = [...this.entries.value, { id: turn, prompt: "", cell: "", context: [], ...about, view }];
    this.#follow(turn, session, view);
  }

  #follow(turn: string, session: string, view: Signal<TurnView>): void {
    this.#follows.set(
      turn,
      this.#transport.follow(turn, session, view.value.seq, (event) => {
        if (event.type === "turn.version") this.#replaced(event.data.replaces, event.data.branch, turn);
        this.#frames.add(view, event);
      }),
    );
  }

  /** The turn `by` is on a branch that ends before `turn`: that one and what followed it are on another. */
  #replaced(turn: string, branch: string, by: string): void {
    const all = this.entries.value;
    const place = all.findIndex((entry) => entry.id === turn);
    const until = all.findIndex((entry) => entry.id === by);
    if (place < 0 || until <= place) return;
    batch(() => {
      this.entries.value = [...all.slice(0, place), ...all.slice(until)];
      if (this.session.value) this.session.value = { ...this.session.value, branch };
    });
  }

  #stored(turn: StoredTurn): Entry {
    const view = signal(turn.events.reduce(after, emptyTurn(turn.turn, turn.session)));
    if (turn.running) {
      view.value = emptyTurn(turn.turn, turn.session);
      this.#follow(turn.turn, turn.session, view);
    }
    return { id: turn.turn, prompt: turn.prompt, cell: turn.cell, context: turn.context, view };
  }

  async #try(work: () => Promise<void>): Promise<void> {
    this.failure.value = null;
    try {
      await work();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.failure.value = error;
    }
  }
}

/** Options of a draft that asks in the place of a turn. */
export const replacing = (entry: Entry): Facts => ({
  replaces: entry.id,
  ...(entry.cell ? { cell: entry.cell } : {}),
});
