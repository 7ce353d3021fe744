/** Reads aloud what running turns have come to. Invisible; the conversation itself is silent, or each word would be
 * said. Turns that were over when they were loaded are not news. */
import { useSignal, useSignalEffect } from "@preact/signals";
import { useRef } from "preact/hooks";
import { announced } from "../turn/announced";
import type { TurnView } from "../turn/turn";
import { useSurroundings } from "./surroundings";

export function Announcer() {
  const { conversation } = useSurroundings();
  const seen = useRef(new Map<string, TurnView>());
  const quiet = useSignal("");
  const urgent = useSignal("");
  useSignalEffect(() => {
    const told = conversation.entries.value.flatMap((entry) => {
      const now = entry.view.value;
      const before = seen.current.get(entry.id);
      if (before === now) return [];
      seen.current.set(entry.id, now);
      return before?.state === "open" ? announced(before, now) : [];
    });
    const said = (loud: boolean) => told.flatMap((one) => (one.urgent === loud ? [one.text] : [])).join("\n");
    if (told.some((one) => !one.urgent)) quiet.value = said(false);
    if (told.some((one) => one.urgent)) urgent.value = said(true);
  });
  return (
    <>
      <div class="ak-unseen ak-aloud" role="status">
        {quiet.value}
      </div>
      <div class="ak-unseen ak-aloud" role="alert">
        {urgent.value}
      </div>
    </>
  );
}
