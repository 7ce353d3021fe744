/** Who follows which turn, from where on: one question for each turn, from where the first of its followers is. Each
 * question has a number: what was on its way when it was asked is of another place, and is told again. */
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
  /** Of the question that was asked last. */
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

  /** Asks for what comes after that which its followers have; of a turn that nobody follows for nothing. */
  resume(turn: string): void {
    const followed = this.#followed.get(turn);
    if (!followed) return;
    followed.number = ++this.#asks;
    followed.confirm = false;
    const after = Math.min(...followed.all.map((one) => one.after));
    this.ask({ do: "follow", turn, session: followed.all.at(-1)?.session ?? "", after, number: followed.number });
  }

  /** After a lost connection. */
  resumeAll(): void {
    for (const turn of this.#followed.keys()) this.resume(turn);
  }

  /** Whether this is the number of the question that was asked last; what is told from then on is of its place. */
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

  /** Whether anybody followed it. */
  forget(turn: string): boolean {
    return this.#followed.delete(turn);
  }

  close(): void {
    this.#followed.clear();
  }
}
