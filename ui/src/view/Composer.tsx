/** The message field with completion, attachments and options. It never loses typed text. */
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { submit } from "../conversation/commands";
import { findCompletion, type Completion } from "../conversation/completion";
import { queuedEntries } from "../conversation/entryList";
import { AttachmentChips } from "./AttachmentChips";
import "./composer.css";
import { useDesk } from "../conversation/panelContext";
import { ButtonIcon } from "./ButtonIcon";
import { TurnOptions } from "./TurnOptions";
import { options, type Option } from "./completionOptions";
import { Problem } from "./Problem";
import { trans, formatNumber } from "../translation/translation";
import { askedText } from "../turn/askedText";

const NEARLY = 0.8;

const LIST = "ak-completion";
const MAX_HEIGHT = 240;

export function Composer() {
  const desk = useDesk();
  const { composing, conversation } = desk;
  const field = useRef<HTMLTextAreaElement>(null);
  const files = useRef<HTMLInputElement>(null);
  const typing = useSignal<Completion | null>(null);
  const chosen = useSignal(0);
  const offered = typing.value ? options(desk, typing.value) : [];
  const why = typing.value ? problem(desk, typing.value) : "";
  const runs = conversation.running.value.length > 0;
  const take = (given: FileList | null | undefined) => {
    const taken = [...(given ?? [])];
    if (taken.length > 0) void composing.attachments.take(taken, desk.session);
    return taken.length > 0;
  };
  useGrowing(field, composing.text.value);
  const edited = conversation.editing.value;
  useEffect(() => {
    if (edited) field.current?.focus();
  }, [edited]);

  const look = (area: HTMLTextAreaElement) => {
    const before = typing.value;
    typing.value = area.selectionStart === area.selectionEnd ? findCompletion(area.value, area.selectionStart) : null;
    chosen.value = 0;
    if (typing.value?.kind === "mention" && before?.kind !== "mention") void desk.lookAtVariables();
  };
  const complete = (option: Option) => {
    const at = typing.value;
    const area = field.current;
    if (!at || !area) return;
    typing.value = null;
    option.take();
    composing.text.value = area.value.slice(0, at.from) + option.text + area.value.slice(at.to);
    const caret = at.from + option.text.length;
    requestAnimationFrame(() => area.setSelectionRange(caret, caret));
    area.focus();
  };
  const inList = (event: KeyboardEvent): boolean => {
    const option = offered[chosen.value];
    if (!option) return false;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const step = event.key === "ArrowDown" ? 1 : -1;
      chosen.value = (chosen.value + step + offered.length) % offered.length;
    } else if (event.key === "Tab" || (event.key === "Enter" && !isWhole(option, composing.text.value))) {
      complete(option);
    } else if (event.key === "Escape") {
      typing.value = null;
    } else {
      return false;
    }
    return true;
  };
  const keys = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (inList(event)) {
      event.preventDefault();
    } else if (isSendKey(event, composing.enterSends.value)) {
      event.preventDefault();
      typing.value = null;
      void submit(desk);
    } else if (event.key === "ArrowUp" && composing.editLast()) {
      event.preventDefault();
    } else if (event.key === "Escape" && edited) {
      event.preventDefault();
      composing.stopEditing();
    }
  };

  return (
    <form
      class={composing.dropping.value ? "ak-composer ak-dropping" : "ak-composer"}
      onSubmit={(event) => {
        event.preventDefault();
        void submit(desk);
      }}
    >
      <Queue />
      {edited && (
        <p class="ak-editing">
          {trans.__("You are editing an earlier message. It is asked again on a new branch.")}
          <button type="button" onClick={() => composing.stopEditing()}>
            {trans.__("Cancel editing")}
          </button>
        </p>
      )}
      <AttachmentChips />
      <div class="ak-field">
        {typing.value && (offered.length > 0 || why) && (
          <Offered options={offered} chosen={chosen.value} choose={complete} problem={why} />
        )}
        <textarea
          ref={field}
          aria-label={trans.__("Message to the agent")}
          placeholder={
            runs
              ? trans.__("The next message waits until the turn ends")
              : conversation.notebook
                ? trans.__("Ask, or / for commands, @ for variables")
                : trans.__("Ask, or / for commands")
          }
          rows={2}
          aria-autocomplete="list"
          aria-haspopup="listbox"
          aria-controls={offered.length > 0 ? LIST : undefined}
          aria-activedescendant={offered.length > 0 ? `${LIST}-${chosen.value}` : undefined}
          value={composing.text.value}
          onInput={(event) => {
            composing.text.value = event.currentTarget.value;
            look(event.currentTarget);
          }}
          onClick={(event) => look(event.currentTarget)}
          onBlur={() => {
            typing.value = null;
          }}
          onPaste={(event) => {
            if (take(event.clipboardData?.files)) event.preventDefault();
          }}
          onKeyDown={keys}
        />
      </div>
      <div class="ak-tools">
        <input
          ref={files}
          type="file"
          multiple
          hidden
          aria-label={trans.__("Files to attach")}
          onChange={(event) => {
            take(event.currentTarget.files);
            event.currentTarget.value = "";
          }}
        />
        <button
          type="button"
          class="ak-icon-button"
          aria-label={trans.__("Attach files or images")}
          title={trans.__("Attach files or images")}
          onClick={() => files.current?.click()}
        >
          <ButtonIcon sign="attach" />
        </button>
        <TurnOptions />
        <Gauge />
        <button class="ak-send" type="submit" disabled={composing.text.value.trim() === "" || composing.sending.value}>
          {runs ? trans.__("Queue") : trans.__("Send")}
        </button>
      </div>
    </form>
  );
}

/** Whether a key sends the message. Ctrl+Enter always does. If `enterSends`, Enter does and Shift+Enter makes a new
 * line; otherwise Shift+Enter does and Enter makes a new line. */
const isSendKey = ({ key, shiftKey, ctrlKey, metaKey }: KeyboardEvent, enterSends: boolean): boolean =>
  key === "Enter" && (ctrlKey || metaKey || shiftKey !== enterSends);

/** Whether the user has typed the command in full; then Enter runs it, otherwise Enter completes it. */
const isWhole = (option: Option, text: string): boolean => option.text.trim() === text.trim();

const problem = (desk: ReturnType<typeof useDesk>, { kind }: Completion): string =>
  kind === "mention" ? desk.variablesProblem.value : "";

interface OfferedProps {
  options: readonly Option[];
  chosen: number;
  choose: (option: Option) => void;
  problem: string;
}

function Offered({ options: all, chosen, choose, problem: why }: OfferedProps) {
  const list = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => list.current?.querySelector(".ak-option-chosen")?.scrollIntoView({ block: "nearest" }));
  return (
    <div class="ak-offered" ref={list}>
      <ul id={LIST} role="listbox" aria-label={trans.__("Completions")} hidden={all.length === 0}>
        {all.map((option, index) => (
          <li
            key={option.name}
            id={`${LIST}-${index}`}
            role="option"
            aria-selected={index === chosen}
            class={index === chosen ? "ak-option ak-option-chosen" : "ak-option"}
            onMouseDown={(event) => {
              event.preventDefault(); // the focus stays in the text field
              choose(option);
            }}
          >
            <span class="ak-option-name">{option.name}</span>
            <span class="ak-cut ak-option-help">{option.help}</span>
          </li>
        ))}
      </ul>
      <Problem text={why} role="status" name="ak-hint" />
    </div>
  );
}

/** Fit the height to the text, up to a limit. */
function useGrowing(field: { current: HTMLTextAreaElement | null }, text: string): void {
  useLayoutEffect(() => {
    const area = field.current;
    if (!area) return;
    area.style.height = "auto";
    const { scrollHeight } = area;
    if (scrollHeight > 0) area.style.height = `${Math.min(scrollHeight + 2, MAX_HEIGHT)}px`;
  }, [field, text]);
}

/** Messages that wait for the running turn; each can be returned to the message field. */
function Queue() {
  const { conversation } = useDesk();
  const waiting = queuedEntries(conversation.running.value);
  if (waiting.length === 0) return null;
  return (
    <ol class="ak-queue" aria-label={trans.__("Waiting messages")}>
      {waiting.map((entry, index) => (
        <li key={entry.id}>
          <span class="ak-cut">{askedText(entry.prompt) || trans.__("A message")}</span>
          <span class="ak-state">{index === 0 ? trans.__("next") : trans.__("after %1 others", index + 1)}</span>
          <button
            type="button"
            aria-label={trans.__("Take back: %1", askedText(entry.prompt))}
            title={trans.__("Return this message to the message field")}
            onClick={() => void conversation.takeBack(entry)}
          >
            {trans.__("Take back")}
          </button>
        </li>
      ))}
    </ol>
  );
}

/** How much of the model's context this conversation uses. */
function Gauge() {
  const desk = useDesk();
  const context = desk.usage.value?.context;
  const total = desk.usage.value?.total;
  const seen = desk.conversation.entries.value.at(-1)?.view.value.context;
  if (!context || !total) return null;
  const { tokens, window } = context;
  const part = window > 0 ? Math.min(1, tokens / window) : 0;
  const percent = `${Math.round(part * 100)} %`;
  const words = [
    window > 0
      ? trans.__(
          "About %1 of %2 tokens of the model's context (%3).",
          formatNumber(tokens),
          formatNumber(window),
          percent,
        )
      : trans.__("About %1 tokens; the size of the model's context is not known.", formatNumber(tokens)),
    seen?.dropped ? trans.__("%1 older messages did not fit.", seen.dropped) : "",
    seen?.shortened ? trans.__("%1 results were shortened.", seen.shortened) : "",
    seen?.summary ? trans.__("A summary replaces the oldest messages.") : "",
    trans.__(
      "Total: %1 tokens read, %2 written.",
      formatNumber(total.prompt_tokens),
      formatNumber(total.completion_tokens),
    ),
    part > NEARLY ? trans.__("/compact makes it shorter.") : "",
  ].filter(Boolean);
  return (
    <span class="ak-gauge-place">
      <button type="button" class="ak-gauge" aria-label={trans.__("Context. %1", words.join(" "))}>
        <span class={part > NEARLY ? "ak-gauge-bar ak-gauge-high" : "ak-gauge-bar"} style={{ "--ak-part": percent }} />
        {window > 0 && percent}
      </button>
      <span class="ak-gauge-words" aria-hidden="true">
        {words.map((line) => (
          <span key={line}>{line}</span>
        ))}
      </span>
    </span>
  );
}
