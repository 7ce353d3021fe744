/** Stops turns, knows which messages this tab sent, and keeps those that never became turns until the composer takes them
 * back. */
import { batch, signal, type Signal } from "@preact/signals";
import { ApiError, type Transport } from "../transport/transport";
import type { ErrorBody } from "../wire/events";
import type { Entry } from "./entry";
import { tabStorage } from "./browserStorage";
import { catchApiError } from "./catchApiError";
import { queuedEntries } from "./entryList";

const SENT = "sent-turns"; // the key in `tabStorage`
const MAX_SENT = 50;

export class Outgoing {
  /** Messages that were stopped while queued, refused, or lost with their server. The composer takes them from here. */
  readonly unsent = signal<readonly Entry[]>([]);
  /** Turns that this tab sent, or removed from the queue. */
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
    await this.cancel(stopped.map(({ id }) => id));
  }

  /** Cancel turns, the last one first: otherwise a queued turn would start when the turn before it is cancelled. */
  async cancel(turns: readonly string[]): Promise<void> {
    await catchApiError(this.failure, async () => {
      for (const turn of [...turns].reverse()) {
        this.#mine.add(turn);
        await this.transport.request("POST", `turns/${turn}/cancel`, {});
      }
    });
  }

  /** Remove the entry of a turn that the store does not have. If this tab sent the turn or removed it from the queue,
   * its message goes to `unsent` and the error to `failure`. */
  giveBack(turn: string, error: ErrorBody | null): void {
    const entry = this.entries.value.find(({ id }) => id === turn);
    if (!entry) return;
    batch(() => {
      this.entries.value = this.entries.value.filter((other) => other !== entry);
      if (!this.#mine.has(turn)) return;
      this.unsent.value = [...this.unsent.value, entry];
      if (error) this.failure.value = new ApiError(500, error);
    });
  }
}
