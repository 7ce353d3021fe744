/** A notice in one line. Its level is in a word, not only in its colour. */
import type { NoticeBlock } from "../turn/turn";
import { Icon } from "./Icon";

const LEVELS = new Map([
  ["warning", "Note: "],
  ["error", "Problem: "],
]);

export function Notice({ block: { level, text } }: { block: NoticeBlock }) {
  const weight = LEVELS.get(level);
  return (
    <p class={`ak-notice ${weight ? "ak-notice-strong" : ""}`}>
      <Icon name={weight ? "warning" : "info"} />
      <span>
        {weight}
        {text}
      </span>
    </p>
  );
}
