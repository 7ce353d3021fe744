/** The whole panel: the header, cards that report the state of the server and the model, turns, the composer, and the
 * sheet (settings, conversations, models) that covers them while it is open. */
import { useEffect, useMemo, useRef } from "preact/hooks";
import { Desk } from "../conversation/panelState";
import { EmptyConversation } from "./EmptyConversation";
import { Composer } from "./Composer";
import { OnDesk, PanelContext, type PanelParts } from "../conversation/panelContext";
import { Header } from "./Header";
import "./shell.css";
import { SheetView } from "./Sheet";
import { StateCardList } from "./StateCardList";
import { Turns } from "./Turns";
import { trans } from "../translation/translation";

/** Two Escapes within this time stop the running turn. */
const TWICE_MS = 800;

export function Panel(surroundings: PanelParts) {
  const { conversation, host } = surroundings;
  const desk = useMemo(() => new Desk(host.transport, conversation), [host, conversation]);
  useEffect(() => () => desk.close(), [desk]);
  const escaped = useRef(0);
  const keys = (event: KeyboardEvent) => {
    const runs = conversation.running.value.length > 0;
    if (event.key === "." && (event.ctrlKey || event.metaKey) && runs) {
      event.preventDefault();
      void desk.stop();
    } else if (event.key === "Escape" && !event.defaultPrevented) {
      const again = event.timeStamp - escaped.current < TWICE_MS;
      escaped.current = event.timeStamp;
      if (runs && again) void desk.stop();
      else if (runs) desk.say(trans.__("Press Escape again to stop the running turn."));
      else host.notebook?.focus();
    }
  };
  const covered = desk.sheet.value !== "" && desk.sheet.value !== "rename";
  const empty = conversation.entries.value.length === 0;
  return (
    <PanelContext.Provider value={surroundings}>
      <OnDesk.Provider value={desk}>
        <section class="ak-panel" aria-label={trans.__("Agent")} onKeyDown={keys}>
          <Header />
          <div class="ak-body">
            <div class="ak-middle" inert={covered}>
              <StateCardList />
              {empty && <EmptyConversation />}
              <div class={empty ? "ak-log ak-log-empty" : "ak-log"}>
                <Turns />
              </div>
              <Composer />
            </div>
            {covered && <SheetView />}
          </div>
        </section>
      </OnDesk.Provider>
    </PanelContext.Provider>
  );
}
