import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test } from "vitest";
import { StateCardList } from "../../src/view/StateCardList";
import { Desked } from "./desked";

let shell: Desked;
beforeEach(() => {
  shell = new Desked();
});
afterEach(() => shell.close());

test("a question takes the focus to its harmless answer, and the next question does again", async () => {
  await shell.show(<StateCardList />);
  for (const text of ["Delete all?", "Drop the branch?"]) {
    (document.activeElement as HTMLElement).blur();
    await act(() => {
      shell.desk.asking.value = { text, yes: "Yes", run: () => Promise.resolve() };
    });
    expect(shell.find("[role=alertdialog] p").textContent).toBe(text);
    expect(document.activeElement?.textContent).toBe("Leave it");
  }
  await shell.press("Leave it");
  expect(shell.page.querySelector("[role=alertdialog]")).toBeNull();
});
