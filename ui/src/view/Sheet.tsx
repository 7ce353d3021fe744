/** A sheet that covers the conversation until the user closes it: sessions, model, settings, help, branches, import. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Branches } from "./Branches";
import { useDesk } from "../conversation/panelContext";
import { ButtonIcon } from "./ButtonIcon";
import { Help } from "./Help";
import { Import } from "./Import";
import { Model } from "./Model";
import { SessionList } from "./Sessions";
import { Settings } from "./Settings";
import { trans } from "../translation/translation";

export function SheetView() {
  switch (useDesk().sheet.value) {
    case "sessions":
      return <Sheet title={trans.__("Conversations")} content={<SessionList />} />;
    case "model":
      return <Sheet title={trans.__("Model")} content={<Model />} />;
    case "settings":
      return <Sheet title={trans.__("Permissions")} content={<Settings />} />;
    case "branches":
      return <Sheet title={trans.__("Branches")} content={<Branches />} />;
    case "import":
      return <Sheet title={trans.__("Import a conversation")} content={<Import />} />;
    case "help":
      return <Sheet title={trans.__("Help and keys")} content={<Help />} />;
    case "rename":
    case "":
      return null;
  }
}

function Sheet({ title, content }: { title: string; content: ComponentChildren }) {
  const desk = useDesk();
  const sheet = useRef<HTMLElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    const field = sheet.current?.querySelector<HTMLElement>("input, select, textarea");
    (field ?? sheet.current)?.focus();
    const panel = sheet.current?.closest(".ak-panel");
    return () => {
      const back = before instanceof HTMLElement && panel?.contains(before) ? before : null;
      (back ?? panel?.querySelector("textarea"))?.focus();
    };
  }, []);
  return (
    <section
      ref={sheet}
      class="ak-sheet"
      role="dialog"
      aria-label={title}
      tabIndex={-1}
      onKeyDown={(event) => {
        if (event.key === "Escape" && !event.defaultPrevented) {
          event.preventDefault();
          event.stopPropagation();
          desk.open("");
        }
      }}
    >
      <div class="ak-sheet-head">
        <button
          type="button"
          class="ak-icon-button"
          aria-label={trans.__("Back to the conversation")}
          onClick={() => desk.open("")}
        >
          <ButtonIcon sign="back" />
        </button>
        <h2>{title}</h2>
      </div>
      <div class="ak-sheet-body" tabIndex={0}>
        {content}
      </div>
    </section>
  );
}
