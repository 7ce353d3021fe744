import { afterEach, beforeEach, expect, test } from "vitest";
import { COMMANDS } from "../../src/conversation/commands";
import { Help } from "../../src/view/Help";
import { Desked } from "./desked";

let shell: Desked;
beforeEach(() => {
  shell = new Desked();
});
afterEach(() => shell.close());

test("all commands are told, and the keys that go through a conversation", async () => {
  await shell.show(<Help />);
  const told = [...shell.page.querySelectorAll("kbd")].map((key) => key.textContent);
  const everywhere = COMMANDS.filter(({ needsNotebook }) => !needsNotebook);
  for (const { name } of everywhere) expect(told).toContain(`/${name}`);
  expect(told).not.toContain("/fix"); // there is no notebook here
  expect(told).not.toContain("/explain");
  expect(told).toEqual(expect.arrayContaining(["Alt+Up, Alt+Down", "Alt+Enter", "A, R"]));
});
