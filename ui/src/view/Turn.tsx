import type { Entry } from "../conversation/conversation";
import { Markdown } from "../markdown/Markdown";
import type { Block } from "../turn/turn";
import { Call } from "./Call";

export function Turn({ entry }: { entry: Entry }) {
  const turn = entry.view.value;
  return (
    <article class="ak-turn" data-turn={turn.id} data-state={turn.state}>
      <div class="ak-prompt">{entry.prompt}</div>
      {turn.blocks.map((block) => (
        <BlockView key={block.id} block={block} session={turn.session} />
      ))}
      {turn.waiting && <p class="ak-waiting">{turn.waiting}</p>}
      {turn.error && (
        <p class="ak-failure">
          {turn.error.message} {turn.error.hint}
        </p>
      )}
      {turn.state !== "open" && (
        <footer class="ak-footer">
          {turn.state === "committed" ? "" : `${turn.state}: ${turn.reason}`} {turn.usage["completion_tokens"] ?? 0}{" "}
          tokens
        </footer>
      )}
    </article>
  );
}

function BlockView({ block, session }: { block: Block; session: string }) {
  switch (block.kind) {
    case "text":
      return <Markdown text={block.text} done={block.done} />;
    case "reasoning":
      return (
        <details class="ak-reasoning">
          <summary>Reasoning</summary>
          <Markdown text={block.text} done={block.done} />
        </details>
      );
    case "call":
      return <Call call={block} session={session} />;
    case "notice":
      return <p class={`ak-notice ak-${block.level}`}>{block.text}</p>;
  }
}
