/** The whole panel: header, turns, composer. */
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Conversation } from "../conversation/conversation";
import type { Host } from "../panel";
import { Composer } from "./Composer";
import { Header } from "./Header";
import { Turns } from "./Turns";

export interface Surroundings {
  conversation: Conversation;
  host: Host;
}

const Around = createContext<Surroundings | null>(null);

/** What every part of the panel may use. */
export function useSurroundings(): Surroundings {
  const found = useContext(Around);
  if (!found) throw new Error("outside of a panel");
  return found;
}

export function Panel(surroundings: Surroundings) {
  return (
    <Around.Provider value={surroundings}>
      <section class="ak-panel" aria-label="Agent">
        <Header />
        <Turns />
        <Composer />
      </section>
    </Around.Provider>
  );
}
