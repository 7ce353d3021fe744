/** The running turns that are shown, each with the view that its events update. */
import type { Signal } from "@preact/signals";
import type { Close, Transport } from "../transport/transport";
import { Frames } from "../turn/frameBatcher";
import type { TurnView } from "../turn/turn";
import type { Bodies, TurnEvent } from "../wire/events";

/** Callbacks for what the conversation does on events of a turn, besides drawing them. */
interface TurnObserver {
  /** The turn is queued or its prompt is stored, so the server can return its prompt now. */
  told: () => void;
  versioned: (version: Bodies["turn.version"]) => void;
  /** The turn ended while it was queued, so the store does not have it. */
  neverBegan: (end: Bodies["turn.finished"]) => void;
  /** The turn ended before the model was called. The store has its prompt, possibly on a branch without a
   * `turn.version` event. */
  endedEarly: () => void;
}

export class RunningTurns {
  readonly #ends = new Map<string, Close>();
  readonly #frames = new Frames();

  constructor(private readonly transport: Transport) {}

  /** Follow the events of a turn and draw them into `view`. The callbacks of `follower` are called before an event is
   * drawn. */
  begin(turn: string, session: string, view: Signal<TurnView>, follower: TurnObserver): void {
    let reached: "queue" | "start" | "model" = "queue";
    const heard = (event: TurnEvent) => {
      if (event.type === "turn.started") reached = "start";
      if (event.type === "context") reached = "model";
      if (event.type === "context" || event.type === "queued") follower.told();
      if (event.type === "turn.version") follower.versioned(event.data);
      if (event.type === "turn.finished" && reached === "queue") follower.neverBegan(event.data);
      this.#frames.add(view, event);
      if (event.type === "turn.finished" && reached === "start") follower.endedEarly();
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
