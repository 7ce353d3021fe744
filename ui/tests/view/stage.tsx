/** A conversation on a page, without a server: requests are kept and answered by what the test gives. */
import { signal } from "@preact/signals";
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { vi } from "vitest";
import { Conversation, type Entry } from "../../src/conversation/conversation";
import type { Connection, Transport } from "../../src/transport/transport";
import type { NotebookHost } from "../../src/notebook/notebook";
import { emptyTurn, type TurnView } from "../../src/turn/turn";
import { PanelContext } from "../../src/conversation/panelContext";
import { Turns } from "../../src/view/Turns";

export interface Asked {
  method: string;
  path: string;
  body: unknown;
}

class Silent {
  observe(): void {}
  disconnect(): void {}
}

export class Stage {
  readonly asked: Asked[] = [];
  readonly page = document.createElement("div");
  readonly conversation: Conversation;
  answer: (asked: Asked) => unknown = () => ({});

  constructor(notebook: NotebookHost | null = null) {
    vi.stubGlobal("ResizeObserver", Silent);
    vi.stubGlobal("IntersectionObserver", Silent);
    Element.prototype.scrollIntoView = () => undefined;
    const transport: Transport = {
      connection: signal<Connection>("online"),
      request: <Answer,>(method: string, path: string, body?: unknown) => {
        const asked = { method, path, body };
        this.asked.push(asked);
        return Promise.resolve().then(() => this.answer(asked) as Answer);
      },
      bytes: () => Promise.resolve(new Blob(["x"])),
      follow: () => () => undefined,
      watch: () => () => undefined,
      serve: () => () => undefined,
      close: () => undefined,
    };
    this.conversation = new Conversation(transport, null);
    this.page.className = "ak-panel";
    document.body.append(this.page);
    const surroundings = { conversation: this.conversation, host: { transport, notebook } };
    void act(() => render(h(PanelContext.Provider, { value: surroundings, children: h(Turns, {}) }), this.page));
  }

  /** Shows these turns, the newest last. */
  show(...turns: TurnView[]): Entry[] {
    const entries = turns.map((turn) => ({
      id: turn.id,
      prompt: `ask ${turn.id}`,
      cell: "",
      context: [],
      view: signal(turn),
    }));
    void act(() => void (this.conversation.entries.value = entries));
    return entries;
  }

  /** The turn is this one now. */
  grow(entry: Entry | undefined, turn: TurnView): void {
    void act(() => {
      if (entry) entry.view.value = turn;
    });
  }

  find(selector: string): HTMLElement {
    const found = this.page.querySelector<HTMLElement>(selector);
    if (!found) throw new Error(`nothing like ${selector} in ${this.page.innerHTML}`);
    return found;
  }

  button(name: string): HTMLButtonElement {
    const all = [...this.page.querySelectorAll("button")];
    const found = all.find((one) => (one.getAttribute("aria-label") ?? one.textContent).trim() === name);
    if (!found) throw new Error(`no button ${name} among ${all.map((one) => one.textContent).join(", ")}`);
    return found;
  }

  async click(name: string): Promise<void> {
    await act(async () => {
      this.button(name).click();
      await Promise.resolve();
    });
  }

  async press(on: Element, key: string, more: KeyboardEventInit = {}): Promise<void> {
    await act(async () => {
      on.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
      await Promise.resolve();
    });
  }

  close(): void {
    void act(() => render(null, this.page));
    this.conversation.close();
    this.page.remove();
    vi.unstubAllGlobals();
  }
}

export const turnOf = (id: string): TurnView => emptyTurn(id, "s");
