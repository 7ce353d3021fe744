/** The list of turns, scrolled to its end. Earlier turns are loaded by scrolling up. Distant turns stay in the page, so
 * that it can be searched, but are not laid out (`content-visibility`). */
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { Announcer } from "./Announcer";
import { Icon } from "./Icon";
import { Scroll } from "./scroll";
import { usePanel } from "../conversation/panelContext";
import { Turn } from "./Turn";
import "./turns.css";
import { useTurnKeys } from "./turnKeys";
import { Problem } from "./Problem";
import { trans } from "../translation/translation";
import { errorMessage } from "../transport/transport";

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

/** Loads earlier turns when scrolled into view; a button for keyboard users. */
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
