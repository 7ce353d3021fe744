/** The header: the session, the notebook and its kernel, the model; a Stop button while a turn runs; the menu. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import type { Bound } from "../notebook/notebook";
import { useDesk, usePanel } from "../conversation/panelContext";
import { ButtonIcon } from "./ButtonIcon";
import "./header.css";
import { useFocusReturn } from "./useFocusReturn";
import { trans } from "../translation/translation";
import { COMMANDS, runCommand, type Command } from "../conversation/commands";

const GROUPS = ["session", "history", "document", "panel"] as const;

const kernelStates = (): Record<Bound["kernelState"], string> => ({
  idle: trans.__("idle"),
  busy: trans.__("busy"),
  starting: trans.__("starting"),
  restarting: trans.__("restarting"),
  dead: trans.__("gone"),
  none: trans.__("no kernel"),
});

export function Header() {
  const desk = useDesk();
  const runs = desk.conversation.running.value.length > 0;
  return (
    <header class="ak-header">
      <div class="ak-header-row">
        <Title />
        {runs && <Stop />}
        <HeaderMenu />
      </div>
      <div class="ak-header-row ak-places">
        <NotebookChip />
        <ModelChip />
        <ConversationChips />
      </div>
    </header>
  );
}

/** It goes away with the turn, and must not take the focus of a user who has pressed it with it. */
function Stop() {
  const desk = useDesk();
  const button = useRef<HTMLButtonElement>(null);
  useFocusReturn(button, () => document.querySelector<HTMLElement>(".ak-composer textarea"));
  return (
    <button
      class="ak-stop"
      type="button"
      title={trans.__("Stop (Escape twice)")}
      ref={button}
      onClick={() => void desk.stop()}
    >
      <ButtonIcon sign="stop" />
      {trans.__("Stop")}
    </button>
  );
}

function Title() {
  const desk = useDesk();
  const { conversation } = desk;
  const session = conversation.session.value;
  const isUnknown = conversation.query !== "" && !conversation.binding.value;
  if (desk.sheet.value === "rename" && session) return <Rename title={session.title} id={session.id} />;
  const title = session?.title ?? "";
  return (
    <h2 class="ak-title">
      <button
        type="button"
        class="ak-title-text"
        disabled={!session}
        title={session ? trans.__("%1 (click to rename)", title || trans.__("Without a title")) : ""}
        onClick={() => desk.open("rename")}
      >
        {title || (session?.turns ? trans.__("Without a title") : isUnknown ? "\u00a0" : trans.__("New conversation"))}
      </button>
      {session?.private && <span class="ak-chip ak-private">{trans.__("private")}</span>}
    </h2>
  );
}

function Rename({ title, id }: { title: string; id: string }) {
  const desk = useDesk();
  const text = useSignal(title);
  const input = useRef<HTMLInputElement>(null);
  useFocusReturn(input, () => document.querySelector<HTMLElement>(".ak-panel .ak-title-text"));
  useEffect(() => input.current?.select(), []);
  const done = () => {
    const named = text.value.trim();
    desk.open("");
    if (named && named !== title) void desk.trying(() => desk.sessions.rename(id, named));
  };
  return (
    <input
      ref={input}
      class="ak-rename"
      aria-label={trans.__("Title of the conversation")}
      maxLength={500}
      value={text.value}
      onInput={(event) => {
        text.value = event.currentTarget.value;
      }}
      onBlur={() => desk.sheet.value === "rename" && done()}
      onKeyDown={(event) => {
        if (event.key === "Enter") {
          event.preventDefault();
          done();
        }
        if (event.key === "Escape") {
          event.preventDefault();
          desk.open("");
        }
      }}
    />
  );
}

function NotebookChip() {
  const { host } = usePanel();
  const { composing } = useDesk();
  if (!host.notebook) return null;
  const bound = host.notebook.bound.value;
  if (!bound) return <span class="ak-chip ak-kernel-none">{trans.__("no notebook")}</span>;
  const name = bound.path.split("/").at(-1) || bound.kernelName;
  const where = composing.where.value;
  // A draft is a copy of the kernel, so it cannot be made while the kernel is busy or gone.
  const elsewhere = bound.kernel && (where === "sandbox" || (where === "draft" && bound.kernelState === "idle"));
  const place = where === "sandbox" ? trans.__("sandbox") : trans.__("draft");
  const state = elsewhere ? place : kernelStates()[bound.kernelState];
  const tone = elsewhere ? "sandbox" : bound.kernelState;
  return (
    <span class={`ak-chip ak-kernel ak-kernel-${tone}`} title={`${bound.path || trans.__("No file")}: ${state}`}>
      <span class="ak-dot" aria-hidden="true" />
      <span class="ak-cut">{name}</span>
      <span class="ak-state">{state}</span>
    </span>
  );
}

/** Buttons for a panel without a notebook: open the list of conversations, or begin a new one. With a notebook, the
 * notebook determines the conversation. */
function ConversationChips() {
  const { host } = usePanel();
  const desk = useDesk();
  if (host.notebook) return null;
  const begin = () => void desk.trying(() => desk.sessions.begin());
  return (
    <span class="ak-chips-away">
      <button type="button" class="ak-chip" onClick={() => desk.open("sessions")}>
        {trans.__("Conversations")}
      </button>
      <button type="button" class="ak-chip" disabled={!desk.conversation.session.value?.turns} onClick={begin}>
        {trans.__("New conversation")}
      </button>
    </span>
  );
}

function ModelChip() {
  const desk = useDesk();
  const model = desk.engine.current.value;
  const turn = desk.conversation.running.value.at(0)?.view.value;
  const loading = turn?.loading;
  const where = model ? (model.local ? trans.__("local") : trans.__("sent to %1", model.host)) : "";
  const pulled = desk.engine.pulling.value;
  const state =
    typeof loading === "number"
      ? trans.__("loads %1 %", Math.round(loading * 100))
      : pulled && !pulled.failure
        ? trans.__("downloads")
        : desk.engine.missing.value
          ? trans.__("not on this machine")
          : where;
  return (
    <button
      type="button"
      class={model?.local === false ? "ak-chip ak-model ak-remote" : "ak-chip ak-model"}
      title={model ? trans.__("%1: %2. Choose another one.", model.model, where) : trans.__("Choose a model")}
      onClick={() => desk.open("model")}
    >
      <span class="ak-cut">{model?.model ?? trans.__("model")}</span>
      {state && <span class="ak-state">{state}</span>}
      {typeof loading === "number" && <progress max={1} value={loading} aria-label={trans.__("Loading the model")} />}
    </button>
  );
}

/** The menu of the header: all commands, by group. Keys: arrows, Home, End, Escape. */
function HeaderMenu() {
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
            desk.open(""); // what the command shows would be below an open sheet
            void runCommand(desk, command);
            if (command.isBeginning) button.current?.closest(".ak-panel")?.querySelector("textarea")?.focus();
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
