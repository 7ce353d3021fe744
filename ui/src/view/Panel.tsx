/** The whole panel: header, turns, composer. */
import { Composer } from "./Composer";
import { Header } from "./Header";
import { Around, type Surroundings } from "./surroundings";
import { Turns } from "./Turns";

export { useSurroundings, type Surroundings } from "./surroundings";

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
