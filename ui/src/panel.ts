/** Mounts the panel. Its host provides the transport and the notebook. */
import { effect, untracked } from "@preact/signals";
import { h, render } from "preact";
import { Conversation } from "./conversation/conversation";
import type { PanelHost } from "./conversation/panelContext";
import { BrowserPreferences } from "./conversation/browserPreferences";
import { setTranslation } from "./translation/translation";
import { NotebookReviews } from "./review/notebookReviews";
import { openTurn } from "./view/openTurn";
import { Panel } from "./view/Panel";
import "./view/panel.css";
import "./view/lab.css"; // the few rules for JupyterLab's side bar are part of the panel's style sheet

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

/** Review changes in the cells of the notebook, if the host can draw there. `element` is the one of the mounted panel. */
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
