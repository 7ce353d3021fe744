/** Which listeners follow the events of which turn, and after which event. All listeners of a turn share one request to
 * the server, which starts at the earliest position among them. Requests are numbered: events that answer an earlier
 * request are ignored, because the latest request returns them again. */
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
  /** Number of the latest request for this turn. */
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

  /** Request the events of a turn after the last one that every listener has. Does nothing for a turn without
   * listeners. */
  resume(turn: string): void {
    const followed = this.#followed.get(turn);
    if (!followed) return;
    followed.number = ++this.#asks;
    followed.confirm = false;
    const after = Math.min(...followed.all.map((one) => one.after));
    this.ask({ do: "follow", turn, session: followed.all.at(-1)?.session ?? "", after, number: followed.number });
  }

  /** Request the events of all turns again. Call this after the connection was lost. */
  resumeAll(): void {
    for (const turn of this.#followed.keys()) this.resume(turn);
  }

  /** The server answered the request `number`. Returns whether it is the latest request for the turn; if so, `deliver`
   * passes events of the turn on from now. */
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

  /** Forget the listeners of a turn. Returns whether there were any. */
  forget(turn: string): boolean {
    return this.#followed.delete(turn);
  }

  close(): void {
    this.#followed.clear();
  }
}
