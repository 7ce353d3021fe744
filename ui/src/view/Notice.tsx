/** One line that a person should read. Its weight is in a word, not in its colour alone. */
import type { NoticeBlock } from "../turn/turn";
import { Icon } from "./Icon";

const LEVELS: Record<string, string> = { warning: "Note: ", error: "Problem: " };

export function Notice({ block: { level, text } }: { block: NoticeBlock }) {
  return (
    <p class={`ak-notice ${level in LEVELS ? "ak-notice-strong" : ""}`}>
      <Icon name={level in LEVELS ? "warning" : "info"} />
      <span>
        {LEVELS[level]}
        {text}
      </span>
    </p>
  );
}
