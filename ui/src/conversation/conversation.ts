/** The session that the panel shows, and the actions on it. It holds signals and does not render. */
import { batch, computed, signal, type ReadonlySignal, type Signal } from "@preact/signals";
import type { NotebookHost } from "../notebook/notebook";
import { ApiError, type Close, type Transport } from "../transport/transport";
import { emptyTurn, isRunning, needsAnswer, type TurnView } from "../turn/turn";
import type { StoredTurn, StoredTurns } from "../wire/bodyTypes";
import type { Binding, Session, Started, Stored } from "../wire/schema";
import type { News } from "../wire/socket";
import { placeQuery, promptOf, turnBody, replaceOptions, type Draft, type Entry } from "./entry";
import { RunningTurns } from "./runningTurns";
import { UnsavedText, pageStart, lostMessages, mergePage, removeReplaced } from "./entryList";
import { Outgoing } from "./outgoingMessages";
import { tabStorage } from "./browserStorage";
import { Corrections } from "./corrections";
import { BrowserPreferences } from "./browserPreferences";
import type { PreferenceStore } from "./preferences";
import { onReconnect } from "./reconnection";
import { ServerRules } from "./serverRules";
import { catchApiError, catchApiErrorWhile } from "./catchApiError";
import { trans } from "../translation/translation";

export { replaceOptions as replacing, type Draft, type Entry };

const PAGE = 20;
const LOOSE = "session without a notebook"; // the key in `tabStorage` for the id of this session

export class Conversation {
  readonly session = signal<Session | null>(null);
  readonly binding = signal<Binding | null>(null);
  readonly entries = signal<readonly Entry[]>([]);
  readonly older = signal(false);
  readonly loading: ReadonlySignal<boolean>;
  readonly failure = signal<ApiError | null>(null);
  readonly running: ReadonlySignal<readonly Entry[]>;
  /** Turns with a call that waits for the user. */
  readonly waiting: ReadonlySignal<readonly Entry[]>;
  /** The entry whose prompt is being edited in the composer. The edited message replaces it on a new branch. */
  readonly editing = signal<Entry | null>(null);
  /** The turn that this page sent last. */
  readonly asked = signal("");
  /** A message that is not an error and is shown once, such as that the session was deleted elsewhere. */
  readonly message = signal("");
  /** Notes that the notebook handed over, such as a selection. They are sent with the next message. */
  readonly notes = signal<NonNullable<Draft["context"]>>([]);
  readonly corrections: Corrections;
  readonly outgoing: Outgoing;
  /** The kernel id and the path of the current notebook; both are empty without a notebook. */
  readonly place = signal({ kernel: "", path: "" });
  readonly #transport: Transport;
  #visit = 0;
  /** The session that is being opened. If two are requested, the later request wins. */
  readonly #opening = signal<{ session: string } | null>(null);
  #watched = "";
  #ends: Close[] = [];
  #endWatch: Close | null = null;
  readonly #growing: RunningTurns;
  readonly #endConnection: Close;
  readonly #unsaved = new UnsavedText();

  constructor(
    transport: Transport,
    readonly notebook: NotebookHost | null,
    readonly preferences: PreferenceStore = new BrowserPreferences(),
    readonly rules = new ServerRules(transport),
  ) {
    this.#transport = transport;
    this.#growing = new RunningTurns(transport);
    this.corrections = new Corrections(notebook, this.message);
    this.outgoing = new Outgoing(transport, this.entries, this.failure);
    this.loading = computed(() => this.#opening.value !== null);
    this.running = computed(() => this.entries.value.filter((entry) => isRunning(entry.view.value)));
    this.waiting = computed(() => this.entries.value.filter((entry) => needsAnswer(entry.view.value)));
    const visited = () => this.#visit > 0;
    this.#endConnection = onReconnect(transport.connection, visited, () => void this.refresh());
  }

  /** Query that names the notebook in requests: `kernel=...` or `path=...`; empty without one. */
  get query(): string {
    return placeQuery(this.place.value);
  }

  /** Show the session of the notebook with this kernel or this path. If both are empty, show the session of this browser
   * tab that has no notebook. */
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

  /** Show a session. Of two calls at once the later one wins, whichever response arrives first. */
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

  /** Load the session again, if it is the one that is shown. */
  async reload(session: string): Promise<void> {
    const opening = this.#opening.value?.session ?? session;
    if (this.session.value?.id === session && opening === session) await this.open(session);
  }

  /** Show a session without a notebook, and remember it for this tab. */
  async openLoose(session: string): Promise<void> {
    tabStorage.write(LOOSE, session);
    await this.open(session);
  }

  /** Load the current state from the server. Entries that are already shown keep their identity. */
  async refresh(): Promise<void> {
    const session = this.session.value;
    if (session && (this.binding.value || !this.query)) await this.reload(session.id);
    else await this.bind(this.place.value.kernel, this.place.value.path);
  }

  /** Load the binding again, and show the session that the notebook is bound to now. */
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

  /** Send a draft. Returns whether the server accepted it. `shown` overrides fields of the entry. */
  async send(draft: Draft, shown: Partial<Entry> = {}): Promise<boolean> {
    const bound = this.notebook?.bound.value ?? null;
    const still = this.#still();
    let taken = false;
    await catchApiErrorWhile(still, this.failure, async () => {
      const session = this.session.value ?? (await this.#withoutKernel());
      if (bound?.kernel) await this.#transport.servesKernel?.(bound.kernel); // else the turn has no tools for cells
      const body = turnBody(draft, session?.id, bound?.kernel, this.rules.apply(this.preferences.values.value));
      const started = await this.#transport.request<Started | Stored>("POST", "turns", body);
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

  /** Run the same prompt again on a new branch. The request has an empty prompt, because the server has it. */
  async retry(entry: Entry): Promise<void> {
    const { prompt, context, media = [], inputs = [] } = entry;
    const { where } = entry.view.value;
    const options = { ...replaceOptions(entry), prompt: "", ...(where && { where }) };
    await this.send({ prompt, options }, { context, media, inputs });
  }

  /** Show another branch of the session. Rejects with ApiError. */
  async toBranch(name: string): Promise<void> {
    const session = this.session.value;
    if (!session) return;
    await this.#transport.request("PUT", `sessions/${session.id}/branch`, { name });
    await this.reload(session.id);
  }

  /** Return a queued message to the composer. */
  async takeBack(entry: Entry): Promise<void> {
    await this.outgoing.takeBack(entry);
  }

  /** Stop the running turn and remove the messages from the queue that this tab sent. */
  async stop(): Promise<void> {
    await this.outgoing.stop(this.running.value);
  }

  async decide(
    approval: string,
    body: { decision: "approve" | "deny"; remember?: string; shown: string; message?: string; edited?: string },
  ): Promise<void> {
    await this.#transport.request("POST", `agent/approvals/${approval}`, body);
  }

  close(): void {
    this.#endConnection();
    this.#leave();
  }

  /** Create the session of a notebook without a kernel before its first turn, since a turn can only name a kernel. */
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

  /** Request the binding of the current notebook. `found` is not called if the notebook changes before the response. */
  async #ask(found: (binding: Binding) => Promise<void>): Promise<void> {
    const still = this.#still();
    await catchApiErrorWhile(still, this.failure, async () => {
      const binding = await this.#transport.request<Binding>("GET", `binding?${this.query}`);
      if (!still()) return;
      this.binding.value = binding;
      await found(binding);
    });
  }

  /** Return a function that says, at each later call, whether the notebook of this moment is still the current one. */
  #still(): () => boolean {
    const visit = this.#visit;
    return () => visit === this.#visit;
  }

  /** Stop showing the session; the notebook stays. */
  #forget(): void {
    this.#unsaved.remember(this.entries.value);
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
    for (const end of this.#ends.splice(0)) end();
    batch(() => {
      this.#forget();
      this.binding.value = null;
      this.failure.value = null;
      this.message.value = "";
    });
  }

  /** Show a page of turns. `asked` has the ids of the turns that were shown when the page was requested. */
  #show(page: StoredTurns, asked: ReadonlySet<string>): void {
    const shown = this.entries.value;
    if (pageStart(shown, page) === 0) this.older.value = page.older;
    this.entries.value = mergePage(shown, page, asked, (turn, entry) => this.#known(turn, entry));
    this.outgoing.unsent.value = [...this.outgoing.unsent.value, ...lostMessages(shown, this.entries.value)];
  }

  #known(turn: StoredTurn, entry: Entry | undefined): Entry {
    const current = entry && (turn.running || !isRunning(entry.view.value));
    if (current) return entry.prompt ? entry : { ...entry, ...promptOf(turn) };
    this.#growing.end(turn.turn);
    if (entry) this.#unsaved.remember([entry]);
    return this.#stored(turn);
  }

  readonly #heard = (news: News): void => {
    const session = this.session.value;
    const mine = news.session === session?.id;
    if (news.type === "turn.opened") {
      if (session && !mine) {
        void this.rebind(); // the notebook is bound to another session now
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
      this.message.value = trans.__("This conversation was deleted. The next message starts a new one.");
      void this.rebind();
    } else if (what === "title" || what === "described") {
      void this.#look(session);
    } else {
      void this.reload(session);
    }
  }

  /** Load the title and the other properties of the session. */
  async #look(session: string): Promise<void> {
    await catchApiError(this.failure, async () => {
      const found = await this.#transport.request<Session>("GET", `sessions/${session}?format=facts`);
      if (this.session.value?.id === session) this.session.value = found;
    });
  }

  /** Load the prompt of a turn that another window or the notebook started. */
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
      // The news `turn.opened`, which has no prompt, arrived before the response to `POST turns`.
      if (!about.prompt) return;
      this.entries.value = this.entries.value.map((entry) => (entry === known ? { ...known, ...about } : entry));
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
      neverBegan: (end) => this.outgoing.giveBack(turn, end),
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
    const view = signal(this.#unsaved.view(turn));
    if (turn.running) {
      view.value = emptyTurn(turn.turn, turn.session);
      this.#follow(turn.turn, turn.session, view);
    }
    return { id: turn.turn, cell: turn.cell, ...promptOf(turn), view };
  }
}
