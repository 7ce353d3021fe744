/** A field in which the user changes the text of a call before the call runs, such as its code. Text with invisible
 * characters is not accepted, because the user would approve what they cannot see. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { invisibleNumbers, removeInvisible } from "../turn/invisibleCharacters";
import "./textEdit.css";
import { trans } from "../translation/translation";

const MAX_ROWS = 24;

interface Edited {
  text: string;
  /** What the text is, for screen readers. */
  label: string;
  /** The words on the button that accepts the text. */
  action: string;
  onAccept: (text: string) => void;
  onCancel: () => void;
}

export function TextEdit({ text, label, action, onAccept, onCancel }: Edited) {
  const field = useRef<HTMLTextAreaElement>(null);
  const current = useSignal(text);
  useEffect(() => field.current?.focus(), []);
  const hidden = invisibleNumbers(current.value);
  const isReady = hidden.length === 0 && current.value.trim() !== "";
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      onCancel();
    } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (isReady) onAccept(current.value);
    }
  };
  return (
    <div class="ak-edit">
      <textarea
        ref={field}
        aria-label={label}
        aria-invalid={hidden.length > 0}
        rows={Math.min(MAX_ROWS, Math.max(2, current.value.split("\n").length))}
        spellcheck={false}
        autocomplete="off"
        wrap="off"
        value={current.value}
        onInput={(event) => (current.value = event.currentTarget.value)}
        onKeyDown={onKeyDown}
      />
      {hidden.length > 0 && (
        <p class="ak-problem" role="alert">
          {trans.__("It contains invisible characters: %1.", hidden.join(", "))}{" "}
          <button type="button" onClick={() => (current.value = removeInvisible(current.value))}>
            {trans.__("Remove them")}
          </button>
        </p>
      )}
      <div class="ak-choices">
        <button
          type="button"
          class="ak-primary"
          disabled={!isReady}
          title={trans.__("%1 (Ctrl+Enter)", action)}
          onClick={() => onAccept(current.value)}
        >
          {action}
        </button>
        <button type="button" onClick={onCancel}>
          {trans.__("Cancel")}
        </button>
      </div>
    </div>
  );
}
