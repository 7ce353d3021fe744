/** Rules of the server, which take precedence over the user's preferences: where code may run, and the server's own
 * instructions. */
import { signal } from "@preact/signals";
import { ApiError, type Transport } from "../transport/transport";
import type { Permissions } from "../wire/schema";
import type { Preferences, Where } from "./preferences";

export type Rules = Pick<Permissions, "policy" | "effort" | "instructions" | "web">;

/** The places where code can run, ordered by what the code can reach, the most first. */
const PLACES: readonly Where[] = ["live", "draft", "sandbox"];

export class ServerRules {
  /** Null until they are loaded; the server applies them in any case. */
  readonly current = signal<Rules | null>(null);

  constructor(private readonly transport: Transport) {}

  async load(): Promise<void> {
    try {
      this.current.value = await this.transport.request<Rules>("GET", "agent/permissions");
    } catch (error) {
      if (!(error instanceof ApiError)) throw error; // the panel shows elsewhere that the server does not answer
    }
  }

  /** Returns who forbids that code runs in `place` (your kernel, a draft or the sandbox); an empty string if it is
   * allowed. */
  denial(place: Where): string {
    const ruling = this.current.value?.policy[`python.${place}`];
    return ruling?.permission === "deny" ? ruling.because : "";
  }

  /** The user's preferences, with another place for code if the server forbids the preferred one, and whether the
   * server has web tools. */
  apply(preferences: Preferences): Preferences & { web: boolean } {
    return { ...preferences, place: this.nearest(preferences.place), web: this.current.value?.web ?? false };
  }

  /** Returns `place` if the server allows it, otherwise the first allowed place after it in `PLACES`; `place` if none
   * is. */
  nearest(place: Where): Where {
    const below = PLACES.slice(PLACES.indexOf(place));
    return below.find((one) => !this.denial(one)) ?? place;
  }
}
