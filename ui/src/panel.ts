/** Mounts the panel. Its host provides the transport and the notebook. */
import { effect, untracked } from "@preact/signals";
import { h, render } from "preact";
import { Conversation } from "./conversation/conversation";
import type { PanelHost } from "./conversation/panelContext";
import { BrowserPreferences } from "./conversation/browserPreferences";
import { setTranslation, trans } from "./translation/translation";
import { NotebookReviews } from "./review/notebookReviews";
import { Panel } from "./view/Panel";
import "./view/panel.css";
import "./view/lab.css"; // the few rules for JupyterLab's side bar are part of the panel's style sheet

const MAX_PAGES = 20;

export { signal } from "@preact/signals";
export { ServerTransport } from "./transport/server";

export interface Mounted {
  conversation: Conversation;
  unmount(): void;
}

export function mount(element: HTMLElement, host: PanelHost): Mounted {
  if (host.translation) setTranslation(host.translation);
  const conversation = new Conversation(host.transport, host.notebook, host.preferences ?? new BrowserPreferences());
  let shown: string | null = null;
  const end = effect(() => {
    const bound = host.notebook?.bound.value ?? null;
    const key = bound ? `${bound.kernel} ${bound.path}` : "";
    if (key === shown) return;
    shown = key;
    untracked(() => void conversation.bind(bound?.kernel ?? "", bound?.path ?? ""));
  });
  render(h(Panel, { conversation, host }), element);
  return {
    conversation,
    unmount() {
      end();
      conversation.close();
      render(null, element);
    },
  };
}

/** Show the agent's changes at the cells of the notebook, if the host can draw there; otherwise returns null. `element`
 * is the element that the panel is mounted in. */
export function reviewInNotebook(
  element: HTMLElement,
  host: PanelHost,
  conversation: Conversation,
): NotebookReviews | null {
  const { places, changes } = host.notebook ?? {};
  if (!places || !changes) return null;
  return new NotebookReviews(conversation, host, places, changes, (turn) => {
    host.show?.();
    void openTurn(element, conversation, turn);
  });
}

/** Shows a turn in the panel and moves the focus to it. Earlier turns are loaded until it is there. */
async function openTurn(panel: HTMLElement, conversation: Conversation, turn: string): Promise<void> {
  const isLoaded = () => conversation.entries.value.some((entry) => entry.id === turn);
  for (let page = 0; page < MAX_PAGES && !isLoaded() && conversation.older.value; page++)
    await conversation.loadOlder();
  if (!isLoaded()) {
    conversation.message.value = trans.__(
      "The conversation that is shown does not have this turn. It may be part of an earlier one of this notebook.",
    );
    return;
  }
  await new Promise((resolve) => setTimeout(resolve)); // until the page has the turns that were loaded
  const element = panel.querySelector<HTMLElement>(`.ak-turn[data-turn="${CSS.escape(turn)}"]`);
  element?.scrollIntoView({ block: "start" });
  element?.focus({ preventScroll: true });
}
