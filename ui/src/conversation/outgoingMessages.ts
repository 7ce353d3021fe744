/** Messages that this page sent: how they are stopped, and those that return to the composer because they never became
 * turns. */
import { batch, signal, type Signal } from "@preact/signals";
import { ApiError, type Transport } from "../transport/transport";
import type { ErrorBody } from "../wire/events";
import type { Entry } from "./entry";
import { catchApiError } from "./catchApiError";

export class Outgoing {
  /** Messages that were stopped while queued, refused, or lost with their server. The composer takes them from here. */
  readonly unsent = signal<readonly Entry[]>([]);
  /** Turns that this page sent, or removed from the queue. */
  readonly #mine = new Set<string>();

  constructor(
    private readonly transport: Transport,
    private readonly entries: Signal<readonly Entry[]>,
    private readonly failure: Signal<ApiError | null>,
  ) {}

  add(turn: string): void {
    this.#mine.add(turn);
  }

  /** Cancel turns, the last one first, so that none starts because the one before it ended. */
  async cancel(turns: readonly string[]): Promise<void> {
    await catchApiError(this.failure, async () => {
      for (const turn of [...turns].reverse()) {
        this.#mine.add(turn);
        await this.transport.request("POST", `turns/${turn}/cancel`, {});
      }
    });
  }

  /** Return the message of a turn that the store does not have. */
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
