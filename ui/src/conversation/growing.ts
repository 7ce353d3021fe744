/** The turns that run, each with the view that its events make grow, until it is not shown any more. */
import type { Signal } from "@preact/signals";
import type { Close, Transport } from "../transport/transport";
import { Frames } from "../turn/frames";
import type { TurnView } from "../turn/turn";
import type { TurnEvent } from "../wire/events";

export class Growing {
  readonly #ends = new Map<string, Close>();
  readonly #frames = new Frames();

  constructor(private readonly transport: Transport) {}

  /** `listener` hears each event before it is drawn. */
  begin(turn: string, session: string, view: Signal<TurnView>, listener: (event: TurnEvent) => void): void {
    const heard = (event: TurnEvent) => {
      listener(event);
      this.#frames.add(view, event);
    };
    this.#ends.set(turn, this.transport.follow(turn, session, view.value.seq, heard));
  }

  end(turn: string): void {
    this.#ends.get(turn)?.();
    this.#ends.delete(turn);
  }

  close(): void {
    for (const end of this.#ends.values()) end();
    this.#ends.clear();
    this.#frames.close();
  }
}
