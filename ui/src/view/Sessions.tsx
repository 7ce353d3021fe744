/** The list of conversations: search in titles and text, open one for this notebook, rename, copy, delete. */
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { UPLOADS, type Row } from "../conversation/sessions";
import { useDesk } from "../conversation/panelContext";
import { useFocusReturn } from "./useFocusReturn";
import { DATE_ALONE, formatMoment, trans } from "../translation/translation";

const SETTLED_MS = 250;

export function SessionList() {
  const desk = useDesk();
  const { sessions } = desk;
  const words = useSignal("");
  useEffect(() => {
    const timer = setTimeout(() => void sessions.find(words.value), words.value ? SETTLED_MS : 0);
    return () => clearTimeout(timer);
  }, [words.value, sessions]);
  useEffect(() => () => void sessions.flush(), [sessions]);
  const failure = sessions.failure.value;
  const rows = sessions.rows.value;
  return (
    <>
      <input
        type="search"
        class="ak-search"
        aria-label={trans.__("Search conversations")}
        placeholder={trans.__("Search titles and messages")}
        value={words.value}
        onInput={(event) => {
          words.value = event.currentTarget.value;
        }}
      />
      {desk.conversation.place.value.path && (
        <p class="ak-hint">
          {trans.__("This notebook continues with the conversation that you open. Its current one stays in this list.")}
        </p>
      )}
      {failure && (
        <p class="ak-problem" role="alert">
          {failure.message}{" "}
          <button type="button" onClick={() => void sessions.find(words.value)}>
            {trans.__("Try again")}
          </button>
        </p>
      )}
      <p class="ak-hint" role="status">
        {rows.length === 0 && (sessions.loading.value ? trans.__("Searching...") : nothing(words.value))}
      </p>
      <ul class="ak-sessions" aria-label={trans.__("Conversations")}>
        {rows.map((row) => (
          <SessionRow key={row.session.id} row={row} />
        ))}
      </ul>
    </>
  );
}

const nothing = (words: string) =>
  words
    ? trans.__("No conversation matches.")
    : trans.__("There are no conversations yet. Send a message to start one.");

function SessionRow({ row }: { row: Row }) {
  const desk = useDesk();
  const { sessions, conversation } = desk;
  const { session, notebooks, found } = row;
  const renaming = useSignal(false);
  const here = conversation.session.value?.id === session.id;
  const title = session.title || trans.__("Without a title");
  const leaving = sessions.leaving.value.has(session.id);
  const item = useFocusInRow(leaving);
  if (leaving) {
    return (
      <li class="ak-session ak-session-leaving" ref={item}>
        <span role="status">{trans.__("%1 will be deleted.", title)}</span>
        <button type="button" onClick={() => sessions.keep(session.id)}>
          {trans.__("Keep it")}
        </button>
      </li>
    );
  }
  const deletion = (
    <button type="button" aria-label={trans.__("Delete %1", title)} onClick={() => sessions.remove(session.id)}>
      {trans.__("Delete")}
    </button>
  );
  if (session.id === UPLOADS && session.turns === 0) {
    return (
      <li class="ak-session" ref={item}>
        <div class="ak-session-open">
          <span class="ak-session-title">{trans.__("Uploaded files")}</span>
          <span class="ak-session-facts">
            {trans.__(
              "Files that you attached before the first message of a conversation. The conversation has copies of its own.",
            )}
          </span>
        </div>
        <div class="ak-session-acts">{deletion}</div>
      </li>
    );
  }
  const open = () => {
    desk.open("");
    if (!here) void desk.trying(() => sessions.openHere(session.id));
  };
  return (
    <li class={here ? "ak-session ak-session-here" : "ak-session"} ref={item}>
      {renaming.value ? (
        <Rename
          title={session.title}
          label={trans.__("New title of %1", title)}
          close={() => (renaming.value = false)}
          rename={(named) => void desk.trying(() => sessions.rename(session.id, named))}
        />
      ) : (
        <button type="button" class="ak-session-open" onClick={open} aria-current={here}>
          <span class="ak-session-title">{title}</span>
          <span class="ak-session-facts">
            {[
              here ? trans.__("shown now") : "",
              trans._n("%1 turn", "%1 turns", session.turns),
              formatMoment(session.updated, DATE_ALONE),
              session.private ? trans.__("private") : "",
              ...notebooks,
            ]
              .filter(Boolean)
              .join(" · ")}
          </span>
          {found.slice(0, 2).map((text) => (
            <q key={text} class="ak-session-found">
              {text}
            </q>
          ))}
        </button>
      )}
      <div class="ak-session-acts">
        <button
          type="button"
          onClick={() => {
            renaming.value = true;
          }}
        >
          {trans.__("Rename")}
        </button>
        <button
          type="button"
          onClick={() => {
            desk.open("");
            void desk.trying(() => sessions.fork(session));
          }}
        >
          {trans.__("Copy")}
        </button>
        {deletion}
      </div>
    </li>
  );
}

interface Renaming {
  title: string;
  label: string;
  close: () => void;
  rename: (title: string) => void;
}

function Rename({ title, label, close, rename }: Renaming) {
  const field = useRef<HTMLInputElement>(null);
  useFocusReturn(field, () => null);
  useEffect(() => {
    field.current?.focus();
    field.current?.select();
  }, []);
  return (
    <input
      class="ak-rename"
      aria-label={label}
      ref={field}
      maxLength={500}
      defaultValue={title}
      onBlur={close}
      onKeyDown={(event) => {
        if (event.key !== "Escape" && event.key !== "Enter") return;
        event.preventDefault();
        const named = event.currentTarget.value.trim();
        close();
        if (event.key === "Enter" && named) rename(named);
      }}
    />
  );
}

/** Keeps the focus in a row of the list while its buttons are replaced by "Keep it" and back, and moves the focus to
 * the search field when the row is removed. */
function useFocusInRow(leaving: boolean) {
  const item = useRef<HTMLLIElement>(null);
  const hadFocus = item.current?.contains(document.activeElement) ?? false;
  useLayoutEffect(() => {
    if (hadFocus) item.current?.querySelector("button")?.focus();
  }, [leaving]);
  useLayoutEffect(
    () => () => {
      const search = item.current?.closest(".ak-sheet")?.querySelector<HTMLElement>("input[type=search]");
      if (item.current?.contains(document.activeElement)) search?.focus();
    },
    [],
  );
  return item;
}
