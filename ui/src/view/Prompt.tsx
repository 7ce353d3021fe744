/** The prompt of a turn, with its attachments. */
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Entry } from "../conversation/conversation";
import { askedText } from "../turn/askedText";
import { shownTitle } from "../turn/cellName";
import { Gallery } from "../media/Gallery";
import { usePanel } from "../conversation/panelContext";
import { markInvisible } from "./Source";
import { trans } from "../translation/translation";

export function Prompt({ entry }: { entry: Entry }) {
  const { host } = usePanel();
  const body = useRef<HTMLDivElement>(null);
  const whole = useSignal(false);
  const cut = useSignal(false);
  useLayoutEffect(() => {
    const { current } = body;
    if (current && !whole.value) cut.value = current.scrollHeight > current.clientHeight + 1;
  }, [entry.prompt]);
  // The server stores files apart from the other context; a message that this page sent has their names in both.
  const files = (entry.inputs ?? []).map(({ name }) => name).filter((name) => !entry.context.includes(name));
  const chips = [...entry.context, ...files];
  return (
    <div class="ak-prompt">
      {(chips.length > 0 || entry.cell) && (
        <p class="ak-chips">
          {entry.cell && host.notebook && (
            <button type="button" class="ak-chip ak-tool" onClick={() => host.notebook?.reveal(entry.cell)}>
              {trans.__("Show cell")}
            </button>
          )}
          {chips.map((chip) => (
            <span class="ak-chip" key={chip}>
              <bdi>{markInvisible(shownTitle(chip))}</bdi>
            </span>
          ))}
        </p>
      )}
      <div class={`ak-asked-text ${whole.value ? "" : "ak-clamped"}`} dir="auto" ref={body}>
        {askedText(entry.prompt) || <span class="ak-quiet">{trans.__("Asked elsewhere")}</span>}
      </div>
      {entry.media && entry.media.length > 0 && (
        <Gallery media={entry.media} session={entry.view.value.session} alt={trans.__("Attachment")} />
      )}
      {cut.value && (
        <button type="button" class="ak-link" aria-expanded={whole.value} onClick={() => (whole.value = !whole.value)}>
          {whole.value ? trans.__("Show less") : trans.__("Show all of it")}
        </button>
      )}
    </div>
  );
}
