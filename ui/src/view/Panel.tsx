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
import { useFileDrop } from "./useFileDrop";
import { Turns } from "./Turns";
import { trans } from "../translation/translation";

/** Milliseconds within which a second Escape stops the running turn. The panel shows a message that asks for it during
 * this time. */
const TWICE_MS = 3_000;

export function Panel(surroundings: PanelParts) {
  const { conversation, host } = surroundings;
  const desk = useMemo(() => new Desk(host.transport, conversation), [host, conversation]);
  useEffect(() => () => desk.close(), [desk]);
  const stopOnEscape = useSecondEscape(desk);
  const keys = (event: KeyboardEvent) => {
    const runs = conversation.running.value.length > 0;
    if (event.key === "." && (event.ctrlKey || event.metaKey) && runs) {
      event.preventDefault();
      void desk.stop();
    } else if (event.key === "Escape" && !event.defaultPrevented) {
      if (runs) stopOnEscape();
      else host.notebook?.focus();
    }
  };
  const covered = desk.sheet.value !== "" && desk.sheet.value !== "rename";
  const empty = conversation.entries.value.length === 0;
  const drop = useFileDrop(desk, covered);
  return (
    <PanelContext.Provider value={surroundings}>
      <OnDesk.Provider value={desk}>
        <section class="ak-panel" aria-label={trans.__("Agent")} onKeyDown={keys} {...drop}>
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

/** Returns the function to call on Escape. The first call shows a message that a second Escape stops the running turn;
 * the second call stops it. The message disappears after TWICE_MS, or when the turn ends. */
function useSecondEscape(desk: Desk): () => void {
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  const text = trans.__("Press Escape again to stop the running turn.");
  const withdraw = () => {
    if (timer.current) clearTimeout(timer.current);
    timer.current = null;
    if (desk.conversation.message.peek() === text) desk.say("");
  };
  const runs = desk.conversation.running.value.length > 0;
  useEffect(() => {
    if (!runs) withdraw();
  }, [runs]);
  useEffect(() => withdraw, [desk]);
  return () => {
    if (timer.current) {
      withdraw();
      void desk.stop();
      return;
    }
    timer.current = setTimeout(withdraw, TWICE_MS);
    desk.say(text);
  };
}
