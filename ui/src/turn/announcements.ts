/** What a screen reader announces about a running turn: each part of the answer once, when it is complete, and a
 * question to the user at once. */
import { plainText } from "./terminalOutput";
import type { Block, TurnView } from "./turn";
import { callLabel, stateOf, statusOf } from "./labels";
import { endOf } from "./serverTexts";
import { trans } from "../translation/translation";

const SPOKEN = 1_000;

export interface Announcement {
  text: string;
  urgent: boolean;
  /** Whether the announcement is a question to the user. */
  asks?: boolean;
}

/** The announcements after the view of a turn changed from `before` to `now`. `cells` has the ids of the notebook's
 * cells in their order. */
export function announcements(before: TurnView, now: TurnView, cells: readonly string[] = []): Announcement[] {
  const was = new Map(before.blocks.map((block) => [block.id, block]));
  const told = now.blocks.flatMap((block) =>
    was.get(block.id) === block ? [] : announceBlock(was.get(block.id), block, cells),
  );
  if (before.state === "open" && now.state !== "open") {
    const end = endOf(now) || stateOf(now);
    const failed = now.state === "failed";
    told.push({ text: failed ? `${stateOf(now)}: ${end}` : end, urgent: failed });
  }
  return told;
}

function announceBlock(was: Block | undefined, block: Block, cells: readonly string[]): Announcement[] {
  if (block.kind === "call") {
    const asks = (one: Block | undefined) => one?.kind === "call" && one.status === "waiting" && !one.done;
    if (asks(block) && !asks(was)) {
      const here = block.approval !== null && !block.approval.decision;
      const where = here ? trans.__("Press Alt+Enter to go there.") : trans.__("The question is in its cell.");
      return [
        { text: trans.__("Your answer is needed: %1? %2", callLabel(block, cells), where), urgent: true, asks: true },
      ];
    }
    return block.done && !was?.done ? [{ text: `${callLabel(block, cells)}: ${statusOf(block)}`, urgent: false }] : [];
  }
  if (!block.done || was?.done || block.kind === "reasoning") return [];
  const text = block.kind === "text" ? plainText(block.text).slice(0, SPOKEN) : block.text;
  return text.trim() ? [{ text, urgent: false }] : [];
}
