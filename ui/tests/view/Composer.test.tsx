import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { COMMANDS } from "../../src/conversation/commands";
import { Composer } from "../../src/view/Composer";
import { Turns } from "../../src/view/Turns";
import { recorded } from "../conversation/replayed";
import { applyEvent } from "../../src/turn/turn";
import { Desked } from "./desked";

class Silent {
  observe(): void {}
  disconnect(): void {}
}

let shell: Desked;
beforeEach(() => {
  Element.prototype.scrollIntoView = () => undefined; // jsdom has none
  shell = new Desked();
});
afterEach(() => {
  shell.close();
  vi.unstubAllGlobals();
});

async function type(text: string): Promise<void> {
  const area = shell.find("textarea");
  if (!(area instanceof HTMLTextAreaElement)) throw new Error("nothing to write in");
  await act(() => {
    area.value = text;
    area.setSelectionRange(text.length, text.length);
    area.dispatchEvent(new Event("input", { bubbles: true }));
  });
}

test("why variables are not those of now is said also where no name fits", async () => {
  shell.desk.variables.value = [{ name: "rain", summary: "DataFrame" }] as typeof shell.desk.variables.value;
  shell.desk.variablesProblem.value = "The kernel is busy.";
  await shell.show(<Composer />);
  await type("look at @ra");
  expect(shell.find(".ak-offered").textContent).toBe("rainDataFrameThe kernel is busy.");
  await type("look at @snow");
  expect(shell.page.querySelectorAll("[role=option]")).toHaveLength(0);
  expect(shell.find("[role=listbox]").hidden).toBe(true);
  expect(shell.find(".ak-offered").textContent).toBe("The kernel is busy.");
  await type("look at it");
  expect(shell.page.querySelector(".ak-offered")).toBeNull();
});

test("a slash offers all commands that are possible now", async () => {
  await act(() => shell.conversation.open("s1"));
  await shell.show(<Composer />);
  await type("/");
  const offered = [...shell.page.querySelectorAll(".ak-option-name")].map((name) => name.textContent);
  const possible = COMMANDS.filter((command) => command.enabled(shell.desk)).map(({ name }) => name);
  expect(offered).toEqual(possible);
  expect(offered).toContain("help");
});

test("a file whose name hides its ending shows the character that hides it", async () => {
  shell.desk.composing.attachments.all.value = [
    { kind: "file", key: "1", name: "invoice\u202Efdp.exe", size: 3, part: 1, id: "f1", failure: "" },
  ] as typeof shell.desk.composing.attachments.all.value;
  await shell.show(<Composer />);
  expect(shell.find(".ak-chip bdi").textContent).toBe("invoiceU+202Efdp.exe");
});

test("a message that waits is shown once, in the queue, and in the conversation when its turn begins", async () => {
  vi.stubGlobal("IntersectionObserver", Silent);
  vi.stubGlobal("ResizeObserver", Silent);
  await shell.conversation.open("s1");
  for (const prompt of ["one", "two"]) await shell.conversation.send({ prompt });
  await shell.show(
    <>
      <Turns />
      <Composer />
    </>,
  );
  const prompts = () => [...shell.page.querySelectorAll(".ak-turn")].map((turn) => turn.getAttribute("aria-label"));
  expect(prompts()).toEqual(["Asked: add them", "Asked: one"]);
  expect(shell.find(".ak-queue").textContent).toContain("two");
  const two = shell.conversation.running.value[1];
  if (!two) throw new Error("the second message does not wait");
  await act(() => void (two.view.value = recorded.slice(0, 1).reduce(applyEvent, two.view.value)));
  expect(prompts()).toEqual(["Asked: add them", "Asked: one", "Asked: two"]);
  expect(shell.page.querySelector(".ak-queue")).toBeNull();
});
