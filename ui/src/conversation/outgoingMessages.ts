/** Stops turns, knows which messages this tab sent, and keeps those that never became turns until the composer takes them
 * back. */
import { batch, signal, type Signal } from "@preact/signals";
import { ApiError, type Transport } from "../transport/transport";
import type { Bodies } from "../wire/events";
import type { Entry } from "./entry";
import { tabStorage } from "./browserStorage";
import { catchApiError } from "./catchApiError";
import { queuedEntries } from "./entryList";

const SENT = "sent-turns"; // the key in `tabStorage`
const MAX_SENT = 50;
/** The reason with which a tab removes a message from the queue. It tells the other tabs that the message went there. */
const TAKEN_BACK = "The message was taken back.";

export class Outgoing {
  /** Messages that were stopped while queued, refused, or lost with their server. The composer takes them from here. */
  readonly unsent = signal<readonly Entry[]>([]);
  /** Turns that this tab removed from the queue. */
  readonly #removed = new Set<string>();
  /** Turns that this tab sent. */
  readonly #mine = new Set(tabStorage.read(SENT).split(" "));

  constructor(
    private readonly transport: Transport,
    private readonly entries: Signal<readonly Entry[]>,
    private readonly failure: Signal<ApiError | null>,
  ) {}

  add(turn: string): void {
    this.#mine.add(turn);
    tabStorage.write(SENT, [...this.#mine].slice(-MAX_SENT).join(" "));
  }

  /** Cancel the running turn, and the messages that this tab queued after it. What cells and other tabs queued stays. */
  async stop(running: readonly Entry[]): Promise<void> {
    const queued = queuedEntries(running);
    const stopped = running.filter((entry) => !queued.includes(entry) || (!entry.cell && this.#mine.has(entry.id)));
    await this.#cancel(stopped, queued);
  }

  /** Remove a queued message from the queue; its text returns to the message field of this tab. */
  async takeBack(entry: Entry): Promise<void> {
    await this.#cancel([entry], [entry]);
  }

  /** Cancel turns, the last one first: otherwise a queued turn would start when the turn before it is cancelled. */
  async #cancel(turns: readonly Entry[], queued: readonly Entry[]): Promise<void> {
    await catchApiError(this.failure, async () => {
      for (const entry of [...turns].reverse()) {
        this.#removed.add(entry.id);
        const reason = queued.includes(entry) ? { reason: TAKEN_BACK } : {};
        await this.transport.request("POST", `turns/${entry.id}/cancel`, reason);
      }
    });
  }

  /** Remove the entry of a turn that the store does not have. If this tab removed the turn from the queue, its message
   * goes to `unsent`. If this tab sent the turn and no other tab removed it, its message does so too, and the error
   * goes to `failure`. */
  giveBack(turn: string, { error, reason }: Pick<Bodies["turn.finished"], "error" | "reason">): void {
    const entry = this.entries.value.find(({ id }) => id === turn);
    if (!entry) return;
    batch(() => {
      this.entries.value = this.entries.value.filter((other) => other !== entry);
      const returns = this.#removed.has(turn) || (this.#mine.has(turn) && reason !== TAKEN_BACK);
      if (!returns) return;
      this.unsent.value = [...this.unsent.value, entry];
      if (error) this.failure.value = new ApiError(500, error);
    });
  }
}
