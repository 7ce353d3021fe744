/** Announces the progress of running turns to screen readers; the conversation itself is silent, because otherwise each
 * word would be read. Turns that were loaded complete are not announced. A question is announced after a short delay,
 * since many are answered by earlier grants, and removed when it is answered. */
import { useSignal, useSignalEffect } from "@preact/signals";
import { useRef } from "preact/hooks";
import { announcements, type Announcement } from "../turn/announcements";
import type { TurnView } from "../turn/turn";
import { usePanel } from "../conversation/panelContext";

const ASKED_FOR_MS = 300;

export function Announcer() {
  const { conversation, host } = usePanel();
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
      return before?.state === "open" ? announcements(before, now, host.notebook?.places?.cells()) : [];
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
