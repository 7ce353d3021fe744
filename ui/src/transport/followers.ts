/** Which listeners follow which turn, and from which event. Each turn has one request, from the earliest position of
 * its followers. Requests are numbered, so that events of an earlier request are ignored; they are sent again. */
import type { TurnEvent } from "../wire/events";
import type { ClientMessage } from "../wire/socket";
import type { Close } from "./transport";

interface Follower {
  session: string;
  after: number;
  listener: (event: TurnEvent) => void;
}

interface Followed {
  all: readonly Follower[];
  /** Number of the latest request. */
  number: number;
  confirm: boolean;
}

export class Followers {
  readonly #followed = new Map<string, Followed>();
  #asks = 0;

  constructor(private readonly ask: (ask: ClientMessage & { do: "follow" | "unfollow" }) => void) {}

  follow(turn: string, session: string, after: number, listener: (event: TurnEvent) => void): Close {
    const follower: Follower = { session, after, listener };
    const all = this.#followed.get(turn)?.all ?? [];
    this.#followed.set(turn, { all: [...all, follower], number: 0, confirm: false });
    this.resume(turn);
    return () => {
      const followed = this.#followed.get(turn);
      const left = followed?.all.filter((other) => other !== follower) ?? [];
      if (followed && left.length > 0) followed.all = left;
      else if (this.forget(turn)) this.ask({ do: "unfollow", turn });
    };
  }

  /** Request the events after the last one that all followers have. Does nothing for a turn without followers. */
  resume(turn: string): void {
    const followed = this.#followed.get(turn);
    if (!followed) return;
    followed.number = ++this.#asks;
    followed.confirm = false;
    const after = Math.min(...followed.all.map((one) => one.after));
    this.ask({ do: "follow", turn, session: followed.all.at(-1)?.session ?? "", after, number: followed.number });
  }

  /** Call this after a lost connection. */
  resumeAll(): void {
    for (const turn of this.#followed.keys()) this.resume(turn);
  }

  /** Whether `number` is that of the latest request. From then on its events are delivered. */
  answered(turn: string, number: number): boolean {
    const followed = this.#followed.get(turn);
    if (followed?.number !== number) return false;
    followed.confirm = true;
    return true;
  }

  deliver(event: TurnEvent): void {
    const followed = this.#followed.get(event.turn);
    if (!followed?.confirm) return;
    for (const follower of followed.all) {
      if (event.seq > follower.after) {
        follower.after = event.seq;
        follower.listener(event);
      }
    }
    if (event.type === "turn.finished") this.forget(event.turn);
  }

  /** Returns whether the turn had followers. */
  forget(turn: string): boolean {
    return this.#followed.delete(turn);
  }

  close(): void {
    this.#followed.clear();
  }
}
