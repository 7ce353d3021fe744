import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test } from "vitest";
import { COMMANDS } from "../../src/conversation/commands";
import { Composer } from "../../src/view/Composer";
import { Desked } from "./desked";

let shell: Desked;
beforeEach(() => {
  Element.prototype.scrollIntoView = () => undefined; // jsdom has none
  shell = new Desked();
});
afterEach(() => shell.close());

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
