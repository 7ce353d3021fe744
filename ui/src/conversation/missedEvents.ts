/** What happened in a session since this browser last showed it. The panel requests it once, when the session is opened
 * again. */
import { effect, signal, untracked } from "@preact/signals";
import { ApiError, type Close, type Transport } from "../transport/transport";
import type { Meanwhile } from "../wire/bodyTypes";
import type { Conversation } from "./conversation";
import { browserStorage } from "./browserStorage";

const SEEN = "seen";
const KEPT = 100;

/** A piece of code that created variables in the sandbox. */
export interface Piece {
  code: string;
  seconds: number;
  effects: { what?: string; kind?: string }[];
}

interface Rebuilt {
  pieces: Piece[];
  ran: number;
  status: string;
  error: string;
}

export class Absence {
  /** Null when there is no news. */
  readonly news = signal<Meanwhile | null>(null);
  readonly #ends: Close[];
  #shown = "";
  #private = false;

  constructor(
    private readonly transport: Transport,
    conversation: Conversation,
  ) {
    const look = () => this.#look();
    document.addEventListener("visibilitychange", look);
    this.#ends = [
      () => document.removeEventListener("visibilitychange", look),
      effect(() => {
        const { id, private: hidden } = conversation.session.value ?? { id: "", private: false };
        const kernel = conversation.place.value.kernel;
        untracked(() => this.#opened(id, kernel, hidden));
      }),
      effect(() => {
        if (conversation.running.value.length === 0) untracked(look);
      }),
    ];
  }

  close(): void {
    this.#look();
    for (const end of this.#ends) end();
  }

  dismiss(): void {
    this.news.value = null;
  }

  /** Run the code again that created the variables of the sandbox. With `dry`, the server returns what would run and
   * runs nothing. */
  async rebuild(session: string, dry: boolean): Promise<Rebuilt> {
    return await this.transport.request<Rebuilt>("POST", `sessions/${session}/rebuild`, { dry_run: dry });
  }

  #opened(id: string, kernel: string, hidden: boolean): void {
    if (id !== this.#shown) this.#look();
    this.#private = hidden;
    if (id === this.#shown) return;
    this.#shown = id;
    this.news.value = null;
    const since = readSeen()[id];
    if (since) void this.#ask(id, kernel, since);
    this.#look();
  }

  async #ask(id: string, kernel: string, since: number): Promise<void> {
    const query = `since=${since}${kernel && `&kernel=${encodeURIComponent(kernel)}`}`;
    try {
      const news = await this.transport.request<Meanwhile>("GET", `sessions/${id}/meanwhile?${query}`);
      if (id === this.#shown && worthTelling(news)) this.news.value = news;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error; // the conversation works without its news
    }
  }

  /** Store the current time as the last time the user saw the session. Nothing is stored for a private session. */
  #look(): void {
    if (!this.#shown || this.#private) return;
    const others = Object.entries(readSeen()).filter(([id]) => id !== this.#shown);
    const kept = [...others, [this.#shown, Math.floor(Date.now() / 1000)] as const].slice(-KEPT);
    browserStorage.write(SEEN, JSON.stringify(Object.fromEntries(kept)));
  }
}

const worthTelling = ({ turns, approvals, lost }: Meanwhile): boolean =>
  turns.length > 0 || approvals.length > 0 || (lost.sandbox !== "" && lost.pieces > 0) || lost.kernel !== "";

function readSeen(): Record<string, number> {
  try {
    return JSON.parse(browserStorage.read(SEEN) || "{}") as Record<string, number>;
  } catch {
    return {};
  }
}
