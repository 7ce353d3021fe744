/** The menu of the header: all commands, by group. Keys: arrows, Home, End, Escape. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { COMMANDS, runCommand, type Command } from "../conversation/commands";
import { usePanel } from "../conversation/panelContext";
import { useDesk } from "./panelStateContext";
import { ButtonIcon } from "./ButtonIcon";
import { trans } from "../translation/translation";

const GROUPS = ["session", "history", "document", "panel"] as const;

export function HeaderMenu() {
  const desk = useDesk();
  const open = useSignal(false);
  const button = useRef<HTMLButtonElement>(null);
  const close = () => {
    open.value = false;
    button.current?.focus();
  };
  return (
    <div class="ak-menu-place">
      <button
        ref={button}
        type="button"
        class="ak-icon-button"
        aria-label={trans.__("Menu")}
        aria-haspopup="menu"
        aria-expanded={open.value}
        onClick={() => {
          open.value = !open.value;
        }}
      >
        <ButtonIcon sign="more" />
      </button>
      {open.value && (
        <Items
          close={close}
          run={(command) => {
            close();
            void runCommand(desk, command);
          }}
        />
      )}
    </div>
  );
}

function Items({ close, run }: { close: () => void; run: (command: Command) => void }) {
  const desk = useDesk();
  const { logOut } = usePanel().host;
  const menu = useRef<HTMLDivElement>(null);
  const leave = () => {
    close();
    logOut?.();
  };
  useEffect(() => {
    menu.current?.querySelector<HTMLElement>("[role=menuitem]")?.focus();
    const elsewhere = (event: PointerEvent) => {
      if (!menu.current?.parentElement?.contains(event.target as Node)) close();
    };
    document.addEventListener("pointerdown", elsewhere);
    return () => document.removeEventListener("pointerdown", elsewhere);
  }, [close]);
  const keys = (event: KeyboardEvent) => {
    if (event.key === "Escape" || event.key === "Tab") {
      event.preventDefault();
      event.stopPropagation();
      close();
      return;
    }
    const items = [...(menu.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
    const at = items.indexOf(document.activeElement as HTMLElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    items.at(to % items.length)?.focus();
  };
  return (
    <div ref={menu} class="ak-menu" role="menu" aria-label={trans.__("Menu")} onKeyDown={keys}>
      {GROUPS.map((group) => (
        <div key={group} role="group" class="ak-menu-group">
          {COMMANDS.filter((command) => command.group === group).map((command) => (
            <button
              key={command.name}
              type="button"
              role="menuitem"
              class="ak-menu-item"
              tabIndex={-1}
              aria-disabled={!command.enabled(desk)}
              title={command.help()}
              onClick={() => command.enabled(desk) && run(command)}
            >
              <span>{command.label()}</span>
              <kbd>/{command.name}</kbd>
            </button>
          ))}
        </div>
      ))}
      {logOut && (
        <div role="group" class="ak-menu-group">
          <button type="button" role="menuitem" class="ak-menu-item" tabIndex={-1} onClick={leave}>
            <span>{trans.__("Log out")}</span>
          </button>
        </div>
      )}
    </div>
  );
}
