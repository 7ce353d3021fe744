/** A notice in one line, with its details folded below it. Its level is in a word, not only in its colour. */
import { serverText } from "../turn/serverTexts";
import type { NoticeBlock } from "../turn/turn";
import { trans } from "../translation/translation";
import { Icon } from "./Icon";
import { markInvisible } from "./Source";

function levelWord(level: string): string {
  if (level === "warning") return trans.__("Note:");
  return level === "error" ? trans.__("Problem:") : "";
}

export function Notice({ block: { level, text, details } }: { block: NoticeBlock }) {
  const weight = levelWord(level);
  const words = (
    <span>
      {weight && `${weight} `}
      {serverText(text)}
    </span>
  );
  if (details) {
    return (
      <details class="ak-notice-details">
        <summary>{words}</summary>
        <pre>{markInvisible(details)}</pre>
      </details>
    );
  }
  return (
    <p class={`ak-notice ${weight ? "ak-notice-strong" : ""}`}>
      <Icon name={weight ? "warning" : "info"} />
      {words}
    </p>
  );
}
