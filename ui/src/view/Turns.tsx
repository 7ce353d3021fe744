/** The list of turns, scrolled to its end. Earlier turns are loaded by scrolling up. Distant turns stay in the page, so
 * that it can be searched, but are not laid out (`content-visibility`). */
import { useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { Icon } from "../markdown/Icon";
import { Scroll } from "./scroll";
import { usePanel } from "../conversation/panelContext";
import { Turn } from "./Turn";
import "./turns.css";
import { Problem } from "./Problem";
import { trans } from "../translation/translation";
import { errorMessage } from "../transport/transport";
import { announcements, type Announcement } from "../turn/announcements";
import type { TurnView } from "../turn/turn";

const ASKED_FOR_MS = 300;

export function Turns() {
  const { conversation } = usePanel();
  const log = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const scroll = useMemo(() => new Scroll(), []);
  const entries = conversation.entries.value;
  const first = entries[0]?.id;
  const wasFirst = useRef(first);
  if (wasFirst.current !== first) scroll.hold(); // before the new content is in the page
  wasFirst.current = first;
  useEffect(() => {
    if (log.current && content.current) return scroll.attach(log.current, content.current);
  }, []);
  useLayoutEffect(() => scroll.release(), [first]);
  const session = conversation.session.value?.id;
  useEffect(() => scroll.toEnd(), [session, conversation.asked.value]);
  useTurnKeys(log);
  return (
    <div class="ak-conversation">
      <div class="ak-turns" role="log" aria-live="off" aria-label={trans.__("Conversation")} tabIndex={0} ref={log}>
        <div ref={content}>
          {conversation.older.value && <Older />}
          {entries.map((entry) => (
            <Turn key={entry.id} entry={entry} />
          ))}
        </div>
      </div>
      {scroll.below.value && (
        <button type="button" class="ak-below" onClick={() => scroll.toEnd()}>
          <Icon name="down" /> {trans.__("New messages below")}
        </button>
      )}
      <Announcer />
    </div>
  );
}

/** A button that loads earlier turns. It also loads them when it is scrolled into view. */
function Older() {
  const { conversation } = usePanel();
  const loading = useSignal(false);
  const problem = useSignal("");
  const place = useRef<HTMLButtonElement>(null);
  const load = async () => {
    if (loading.value) return;
    loading.value = true;
    problem.value = "";
    try {
      await conversation.loadOlder();
    } catch (error) {
      problem.value = errorMessage(error);
    }
    loading.value = false;
  };
  useEffect(() => {
    if (!place.current) return;
    const sight = new IntersectionObserver((seen) => {
      if (seen.some((one) => one.isIntersecting) && !problem.value) void load();
    });
    sight.observe(place.current);
    return () => sight.disconnect();
  }, [conversation.entries.value[0]?.id]);
  return (
    <p class="ak-older">
      <button type="button" ref={place} disabled={loading.value} onClick={() => void load()}>
        {loading.value ? trans.__("Loading") : trans.__("Earlier turns")}
      </button>
      <Problem text={problem.value} inline />
    </p>
  );
}

/** Handles keys of the conversation anywhere in the panel: Alt+Up and Alt+Down move between turns; Alt+Enter moves to
 * the first open approval, or if there is none, to the first change that is not accepted yet. */
function useTurnKeys(log: { current: HTMLElement | null }): void {
  useEffect(() => {
    const panel = log.current?.closest<HTMLElement>(".ak-panel") ?? log.current;
    const pressed = (event: KeyboardEvent) => {
      if (!log.current || !event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      const goal =
        event.key === "Enter"
          ? (log.current.querySelector<HTMLElement>(".ak-approval") ??
            log.current.querySelector<HTMLElement>(".ak-review[data-open] summary"))
          : event.key === "ArrowUp" || event.key === "ArrowDown"
            ? neighbouringTurn(log.current, event.key === "ArrowUp" ? -1 : 1)
            : null;
      if (!goal) return;
      event.preventDefault();
      goal.focus({ preventScroll: true });
      goal.scrollIntoView({ block: event.key === "Enter" ? "nearest" : "start" });
    };
    panel?.addEventListener("keydown", pressed);
    return () => panel?.removeEventListener("keydown", pressed);
  }, []);
}

/** The turn that is `step` turns after the turn with the focus; the last turn if no turn has the focus. */
function neighbouringTurn(log: HTMLElement, step: number): HTMLElement | null {
  const turns = [...log.querySelectorAll<HTMLElement>(".ak-turn")];
  const here = turns.findIndex((turn) => turn.contains(document.activeElement));
  return turns[here < 0 ? turns.length - 1 : Math.max(0, Math.min(here + step, turns.length - 1))] ?? null;
}

/** Announces the progress of running turns to screen readers; the conversation itself is silent, because otherwise each
 * word would be read. Turns that were loaded complete are not announced. A question is announced after a short delay,
 * since many are answered by earlier grants, and removed when it is answered. All texts are removed when the panel shows
 * another conversation. */
function Announcer() {
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
  const session = conversation.session.value?.id;
  useEffect(() => {
    if (!session) return;
    return () => {
      clearTimeout(later.current);
      quiet.value = urgent.value = question.value = "";
    };
  }, [session]);
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
