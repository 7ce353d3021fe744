/** Reads aloud what running turns have come to. Invisible; the conversation itself is silent, or each word would be
 * said. Turns that were over when they were loaded are not news. A question is read once it has stood for a moment, since
 * many are answered by what the person allowed before; one that is answered is there no more. */
import { useSignal, useSignalEffect } from "@preact/signals";
import { useRef } from "preact/hooks";
import { announcements, type Announcement } from "../turn/announcements";
import type { TurnView } from "../turn/turn";
import { usePanel } from "../conversation/panelContext";

const ASKED_FOR_MS = 300;

export function Announcer() {
  const { conversation } = usePanel();
  const seen = useRef(new Map<string, TurnView>());
  const quiet = useSignal("");
  const urgent = useSignal("");
  const question = useSignal("");
  const later = useRef<ReturnType<typeof setTimeout>>(undefined);
  useSignalEffect(() => {
    if (conversation.waiting.value.length > 0) return;
    clearTimeout(later.current);
    question.value = "";
  });
  useSignalEffect(() => {
    const told = conversation.entries.value.flatMap((entry) => {
      const now = entry.view.value;
      const before = seen.current.get(entry.id);
      if (before === now) return [];
      seen.current.set(entry.id, now);
      return before?.state === "open" ? announcements(before, now) : [];
    });
    const said = (which: (one: Announcement) => boolean) =>
      told
        .filter(which)
        .map((one) => one.text)
        .join("\n");
    const [calm, loud, asked] = [said((one) => !one.urgent), said((one) => one.urgent && !one.asks), said(isQuestion)];
    if (calm) quiet.value = calm;
    if (loud) urgent.value = loud;
    if (!asked) return;
    clearTimeout(later.current);
    later.current = setTimeout(() => (question.value = asked), ASKED_FOR_MS);
  });
  return (
    <>
      <div class="ak-unseen ak-aloud" role="status">
        {quiet.value}
      </div>
      <div class="ak-unseen ak-aloud" role="alert">
        {question.value || urgent.value}
      </div>
    </>
  );
}

const isQuestion = (one: Announcement): boolean => one.asks === true;
