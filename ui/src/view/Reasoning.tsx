/** The reasoning of a model as one line, which opens to the text. */
import { useSignal } from "@preact/signals";
import { Markdown } from "../markdown/Markdown";
import type { TextBlock } from "../turn/turn";
import { formatDuration } from "../turn/labels";
import { Elapsed } from "./Elapsed";
import { Icon } from "./Icon";
import { trans } from "../translation/translation";

export function Reasoning({ block }: { block: TextBlock }) {
  const open = useSignal(false);
  const took = formatDuration(block.ended - block.began);
  return (
    <div class="ak-reasoning">
      <button type="button" class="ak-row" aria-expanded={open.value} onClick={() => (open.value = !open.value)}>
        <Icon name="reasoning" />
        <span class="ak-verb">{block.done ? trans.__("Reasoning") : trans.__("Reasoning...")}</span>
        <span class="ak-outcome">{block.done ? took : <Elapsed since={block.began} />}</span>
      </button>
      {open.value && (
        <div class="ak-inside">
          <Markdown text={block.text} done={block.done} />
        </div>
      )}
    </div>
  );
}
