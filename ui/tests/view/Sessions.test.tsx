import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test } from "vitest";
import { SessionList } from "../../src/view/Sessions";
import { Desked } from "./desked";

let shell: Desked;
beforeEach(() => {
  shell = new Desked();
});
afterEach(() => shell.close());

test("who renames a conversation types its title at once", async () => {
  await shell.show(<SessionList />);
  await act(() => shell.desk.sessions.find(""));
  await shell.press("Rename");
  expect(document.activeElement?.getAttribute("aria-label")).toBe("New title of Rain");
});
