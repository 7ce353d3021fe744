/** Shows a turn in the panel and moves the focus to it. Earlier turns are loaded until it is there. */
import type { Conversation } from "../conversation/conversation";
import { trans } from "../translation/translation";

const MAX_PAGES = 20;
const GONE = trans.__(
  "The conversation that is shown does not have this turn. It may be part of an earlier one of this notebook.",
);

export async function openTurn(panel: HTMLElement, conversation: Conversation, turn: string): Promise<void> {
  const isLoaded = () => conversation.entries.value.some((entry) => entry.id === turn);
  for (let page = 0; page < MAX_PAGES && !isLoaded() && conversation.older.value; page++)
    await conversation.loadOlder();
  if (!isLoaded()) {
    conversation.message.value = GONE;
    return;
  }
  await new Promise((resolve) => setTimeout(resolve)); // until the page has the turns that were loaded
  const element = panel.querySelector<HTMLElement>(`.ak-turn[data-turn="${CSS.escape(turn)}"]`);
  element?.scrollIntoView({ block: "start" });
  element?.focus({ preventScroll: true });
}
