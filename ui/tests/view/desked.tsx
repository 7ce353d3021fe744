/** A part of the shell with the desk that it has in the panel, before the server that plays a conversation. */
import { type ComponentChildren, render } from "preact";
import { act } from "preact/test-utils";
import { Conversation } from "../../src/conversation/conversation";
import { Desk } from "../../src/conversation/panelState";
import { OnDesk } from "../../src/conversation/panelContext";
import { PanelContext, type PanelHost } from "../../src/conversation/panelContext";
import { Replayed } from "../conversation/replayed";

export class Desked {
  readonly server = new Replayed();
  readonly conversation = new Conversation(this.server, null);
  readonly desk = new Desk(this.server, this.conversation);
  readonly page = document.body.appendChild(document.createElement("div"));

  /** `host`: what the host has besides the server. */
  async show(part: ComponentChildren, host: Partial<PanelHost> = {}): Promise<void> {
    const around = { conversation: this.conversation, host: { transport: this.server, notebook: null, ...host } };
    await act(async () => {
      render(
        <PanelContext.Provider value={around}>
          <OnDesk.Provider value={this.desk}>{part}</OnDesk.Provider>
        </PanelContext.Provider>,
        this.page,
      );
      await new Promise((done) => setTimeout(done));
    });
  }

  find(selector: string): HTMLElement {
    const found = this.page.querySelector<HTMLElement>(selector);
    if (!found) throw new Error(`nothing like ${selector} in ${this.page.innerHTML}`);
    return found;
  }

  async press(name: string): Promise<void> {
    const all = [...this.page.querySelectorAll("button")];
    const button = all.find((one) => (one.getAttribute("aria-label") ?? one.textContent) === name);
    if (!button) throw new Error(`no button ${name} in ${this.page.innerHTML}`);
    await act(async () => {
      button.click();
      await this.server.settled();
    });
  }

  close(): void {
    void act(() => render(null, this.page));
    this.desk.close();
    this.conversation.close();
    this.page.remove();
  }
}
