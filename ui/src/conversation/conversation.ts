/** The session that the panel shows, and what one does in it. Holds signals; knows nothing of how they are drawn. */
import { batch, computed, effect, signal, untracked, type ReadonlySignal, type Signal } from "@preact/signals";
import type { NotebookHost } from "../notebook/notebook";
import type { Close, Transport } from "../transport/transport";
import { ApiError } from "../transport/transport";
import { applyEvent, emptyTurn, isRunning, needsAnswer, type TurnView } from "../turn/turn";
import type { Binding, Session, StartedTurn, StoredTurn, StoredTurns } from "../wire/api";
import type { News } from "../wire/socket";
import { turnBody, replaceOptions, type Draft, type Entry } from "./entry";
import { RunningTurns } from "./runningTurns";
import { Outgoing } from "./outgoing";
import { tabStorage } from "./browserStorage";
import { pageStart, lostMessages, mergePage, removeReplaced } from "./entryList";
import { catchApiError, catchApiErrorWhile } from "./catchApiError";

export { replaceOptions as replacing, type Draft, type Entry };

const PAGE = 20;
/** Of a conversation without a notebook: the tab remembers it. */
const LOOSE = "session without a notebook";

export class Conversation {
  readonly session = signal<Session | null>(null);
  readonly binding = signal<Binding | null>(null);
  readonly entries = signal<readonly Entry[]>([]);
  readonly older = signal(false);
  readonly loading: ReadonlySignal<boolean>;
  readonly failure = signal<ApiError | null>(null);
  readonly running: ReadonlySignal<readonly Entry[]>;
  /** Those of which a call waits for the person. */
  readonly waiting: ReadonlySignal<readonly Entry[]>;
  /** The turn whose prompt is in the composer to be changed: what is sent then takes its place, on a branch. */
  readonly editing = signal<Entry | null>(null);
  /** The turn that this page asked for last. */
  readonly asked = signal("");
  /** What is not an error, and is said once: that it was deleted elsewhere, what was done. */
  readonly message = signal("");
  /** What the notebook handed over to be asked about, such as a selection: it goes along with the next message. */
  readonly notes = signal<NonNullable<Draft["context"]>>([]);
  readonly outgoing: Outgoing;
  /** The notebook in front; both empty without one. */
  readonly place = signal({ kernel: "", path: "" });
  readonly #transport: Transport;
  #visit = 0;
  /** The session that is being opened: of two at once the one asked for last. */
  readonly #opening = signal<{ session: string } | null>(null);
  #watched = "";
  #ends: Close[] = [];
  #endWatch: Close | null = null;
  readonly #growing: RunningTurns;
  readonly #endConnection: Close;

  constructor(
    transport: Transport,
    readonly notebook: NotebookHost | null,
  ) {
    this.#transport = transport;
    this.#growing = new RunningTurns(transport);
    this.outgoing = new Outgoing(transport, this.entries, this.failure);
    this.loading = computed(() => this.#opening.value !== null);
    this.running = computed(() => this.entries.value.filter((entry) => isRunning(entry.view.value)));
    this.waiting = computed(() => this.entries.value.filter((entry) => needsAnswer(entry.view.value)));
    let lost = false;
    this.#endConnection = effect(() => {
      const online = transport.connection.value === "online";
      if (online && lost) untracked(() => void this.refresh());
      lost = !online && (lost || this.#visit > 0);
    });
  }

  /** Names the notebook in requests: `kernel=...` or `path=...`; empty without one. */
  get query(): string {
    const { kernel, path } = this.place.value;
    if (kernel) return `kernel=${encodeURIComponent(kernel)}`;
    return path ? `path=${encodeURIComponent(path)}` : "";
  }

  /** Shows the session of a kernel's notebook, or of a notebook without a kernel; both empty: one without a notebook. */
  async bind(kernel: string, path: string): Promise<void> {
    batch(() => {
      this.#leave();
      this.place.value = { kernel, path };
    });
    if (!this.query) {
      const loose = tabStorage.read(LOOSE);
      if (loose) await this.open(loose);
      if (this.failure.value?.status === 404) this.failure.value = null;
      return;
    }
    await this.#ask(async ({ session }) => {
      if (kernel) this.#ends.push(this.#transport.watch({ kernel }, this.#heard));
      if (session) await this.open(session.id);
    });
  }

  /** Of two that are opened at once the one asked for last is shown, whichever answer comes first. */
  async open(session: string): Promise<void> {
    const opening = { session };
    const shown = new Set(this.entries.peek().map((entry) => entry.id));
    const still = () => this.#opening.peek() === opening;
    this.#opening.value = opening;
    await catchApiErrorWhile(still, this.failure, async () => {
      const [found, page] = await Promise.all([
        this.#transport.request<Session>("GET", `sessions/${session}?format=facts`),
        this.#transport.request<StoredTurns>("GET", `sessions/${session}/turns?limit=${PAGE}`),
      ]);
      if (!still()) return;
      batch(() => {
        if (this.session.value?.id !== session) this.#forget();
        this.session.value = found;
        this.#show(page, shown);
      });
      this.#watch(session);
    });
    if (still()) this.#opening.value = null;
  }

  /** What is shown of the session, if it is the one that is shown. */
  async reload(session: string): Promise<void> {
    const opening = this.#opening.value?.session ?? session;
    if (this.session.value?.id === session && opening === session) await this.open(session);
  }

  /** Without a notebook: this tab goes on with that session. */
  async openLoose(session: string): Promise<void> {
    tabStorage.write(LOOSE, session);
    await this.open(session);
  }

  /** What the server knows now; what is shown already stays as it is. */
  async refresh(): Promise<void> {
    const session = this.session.value;
    const { kernel, path } = this.place.value;
    if (session && (this.binding.value || !this.query)) await this.reload(session.id);
    else await this.bind(kernel, path);
  }

  /** The notebook has another session now, or other facts about it. */
  async rebind(): Promise<void> {
    if (!this.query) return;
    await this.#ask(async ({ session }) => {
      if (session && session.id !== this.session.value?.id) await this.open(session.id);
      if (!session) this.#forget();
    });
  }

  async loadOlder(): Promise<void> {
    const first = this.entries.value[0];
    const session = this.session.value;
    if (!first || !session || !this.older.value) return;
    const query = `limit=${PAGE}&before=${first.id}`;
    const page = await this.#transport.request<StoredTurns>("GET", `sessions/${session.id}/turns?${query}`);
    if (this.session.value?.id !== session.id || this.entries.value[0]?.id !== first.id) return;
    batch(() => {
      this.older.value = page.older;
      this.entries.value = [...page.turns.map((turn) => this.#stored(turn)), ...this.entries.value];
    });
  }

  /** Whether the server took it. `shown` is what stands in the conversation for it, where the draft does not say it. */
  async send(draft: Draft, shown: Partial<Entry> = {}): Promise<boolean> {
    const bound = this.notebook?.bound.value ?? null;
    const still = this.#still();
    let taken = false;
    await catchApiErrorWhile(still, this.failure, async () => {
      const session = this.session.value ?? (await this.#withoutKernel());
      const body = turnBody(draft, session?.id, bound?.kernel);
      const started = await this.#transport.request<StartedTurn>("POST", "turns", body);
      taken = true;
      this.outgoing.add(started.turn);
      if (!still() || (this.session.value && this.session.value.id !== started.session)) return;
      const { prompt, chips: context = [], media = [], inputs = [] } = draft;
      this.#add(started.turn, started.session, { prompt, context, media, inputs, ...shown });
      this.asked.value = started.turn;
      if (!this.session.value) await this.#adopt(started.session);
    });
    return taken;
  }

  /** Asks it again in its place, on a branch; the answer that is there stays on its own. The server knows the prompt. */
  async retry(entry: Entry): Promise<void> {
    const { prompt, context, media = [], inputs = [] } = entry;
    const { where } = entry.view.value;
    const options = { ...replaceOptions(entry), prompt: "", ...(where && { where }) };
    await this.send({ prompt, options }, { context, media, inputs });
  }

  /** Shows another branch of the session. Rejects with ApiError. */
  async toBranch(name: string): Promise<void> {
    const session = this.session.value;
    if (!session) return;
    await this.#transport.request("PUT", `sessions/${session.id}/branch`, { name });
    await this.reload(session.id);
  }

  /** A turn that runs is stopped; a message that waits for its place goes back to the composer. */
  async cancel(turn: string): Promise<void> {
    await this.outgoing.cancel([turn]);
  }

  /** Ends the turn that runs and takes messages behind it out of the queue. What a cell asked waits on. */
  async stop(): Promise<void> {
    const ended = this.running.value.filter(({ cell }, place) => place === 0 || !cell);
    await this.outgoing.cancel(ended.map(({ id }) => id));
  }

  async decide(
    approval: string,
    body: { decision: "approve" | "deny"; remember?: string; shown: string; message?: string },
  ): Promise<void> {
    await this.#transport.request("POST", `agent/approvals/${approval}`, body);
  }

  close(): void {
    this.#endConnection();
    this.#leave();
  }

  /** A notebook without a kernel gets its session before its first turn: a turn names kernels only. */
  async #withoutKernel(): Promise<Session | null> {
    if (this.place.value.kernel || !this.place.value.path) return null;
    const still = this.#still();
    const made = await this.#transport.request<Session>("POST", `sessions?${this.query}`, { bind: true });
    if (!still()) return made;
    this.session.value = made;
    this.#watch(made.id);
    return made;
  }

  async #adopt(session: string): Promise<void> {
    if (this.#watched === session) return;
    this.#watch(session);
    const still = this.#still();
    const found = await this.#transport.request<Session>("GET", `sessions/${session}?format=facts`);
    if (!still() || this.#watched !== session) return;
    this.session.value = found;
    if (!this.query) tabStorage.write(LOOSE, session);
  }

  #watch(session: string): void {
    if (this.#watched === session) return;
    this.#endWatch?.();
    this.#watched = session;
    this.#endWatch = this.#transport.watch({ session }, this.#heard);
  }

  /** What the notebook in front is bound to; `found` does not hear of one that is not in front any more. */
  async #ask(found: (binding: Binding) => Promise<void>): Promise<void> {
    const still = this.#still();
    await catchApiErrorWhile(still, this.failure, async () => {
      const binding = await this.#transport.request<Binding>("GET", `binding?${this.query}`);
      if (!still()) return;
      this.binding.value = binding;
      await found(binding);
    });
  }

  /** Whether the notebook in front is still the one of now: what is answered later is not for another one. */
  #still(): () => boolean {
    const visit = this.#visit;
    return () => visit === this.#visit;
  }

  /** The session is not shown any more; the notebook stays. */
  #forget(): void {
    this.#growing.close();
    this.#endWatch?.();
    this.#endWatch = null;
    this.#watched = "";
    batch(() => {
      this.session.value = null;
      this.entries.value = [];
      this.older.value = false;
      this.editing.value = null;
    });
  }

  #leave(): void {
    this.#visit += 1;
    this.#opening.value = null;
    for (const end of this.#ends) end();
    this.#ends = [];
    batch(() => {
      this.#forget();
      this.binding.value = null;
      this.failure.value = null;
      this.message.value = "";
    });
  }

  /** `asked`: the turns that were shown when the page was asked for. */
  #show(page: StoredTurns, asked: ReadonlySet<string>): void {
    const shown = this.entries.value;
    if (pageStart(shown, page) === 0) this.older.value = page.older;
    this.entries.value = mergePage(shown, page, asked, (turn, entry) => this.#known(turn, entry));
    this.outgoing.unsent.value = [...this.outgoing.unsent.value, ...lostMessages(shown, this.entries.value)];
  }

  #known(turn: StoredTurn, entry: Entry | undefined): Entry {
    if (!entry) return this.#stored(turn);
    if (!turn.running && isRunning(entry.view.value)) {
      this.#growing.end(turn.turn);
      return this.#stored(turn);
    }
    return entry.prompt ? entry : { ...entry, ...promptOf(turn) };
  }

  readonly #heard = (news: News): void => {
    const session = this.session.value;
    const mine = news.session === session?.id;
    if (news.type === "turn.opened") {
      if (session && !mine) {
        void this.rebind(); // the notebook talks to another one now
        return;
      }
      if (!session) void this.#adopt(news.session);
      this.#add(news.turn, news.session, { cell: news.cell });
    } else if (news.type === "binding.changed") {
      if (news.session !== (session?.id ?? null)) void this.rebind();
    } else if (mine && news.type === "turn.closed") {
      void this.#look(news.session);
    } else if (mine && news.type === "session.changed") {
      this.#changed(news.session, news.what);
    }
  };

  #changed(session: string, what: string): void {
    if (what === "deleted") {
      this.#forget();
      this.message.value = "This conversation was deleted. The next message begins a new one.";
      void this.rebind();
    } else if (what === "title" || what === "described") {
      void this.#look(session);
    } else {
      void this.reload(session);
    }
  }

  /** Its title and what else is told of it. */
  async #look(session: string): Promise<void> {
    await catchApiError(this.failure, async () => {
      const found = await this.#transport.request<Session>("GET", `sessions/${session}?format=facts`);
      if (this.session.value?.id === session) this.session.value = found;
    });
  }

  /** What was asked, of a turn that another window or the notebook began. */
  async #learn(turn: string, session: string): Promise<void> {
    await catchApiError(this.failure, async () => {
      const { turns, waiting } = await this.#transport.request<StoredTurns>("GET", `sessions/${session}/turns?limit=5`);
      const found = [...turns, ...waiting].find((one) => one.turn === turn);
      if (found) this.#add(turn, session, promptOf(found));
    });
  }

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
    const known = () => this.entries.value.find((entry) => entry.id === turn)?.prompt !== "";
    this.#growing.begin(turn, session, view, {
      told: () => known() || void this.#learn(turn, session),
      versioned: ({ replaces, branch }) => this.#replaced(replaces, branch, turn),
      neverBegan: (error) => this.outgoing.giveBack(turn, error),
      endedEarly: () => void this.reload(session),
    });
  }

  #replaced(turn: string, branch: string, by: string): void {
    const left = removeReplaced(this.entries.value, turn, by);
    if (!left) return;
    batch(() => {
      this.entries.value = left;
      if (this.session.value) this.session.value = { ...this.session.value, branch };
    });
  }

  #stored(turn: StoredTurn): Entry {
    const shown = turn.events.reduce(applyEvent, emptyTurn(turn.turn, turn.session));
    const view = signal({ ...shown, began: turn.created, ended: turn.closed ?? 0 });
    if (turn.running) {
      view.value = emptyTurn(turn.turn, turn.session);
      this.#follow(turn.turn, turn.session, view);
    }
    return { id: turn.turn, cell: turn.cell, ...promptOf(turn), view };
  }
}

const promptOf = ({ prompt, context, media, inputs }: StoredTurn) => ({ prompt, context, media, inputs });
