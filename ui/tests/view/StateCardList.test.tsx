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

test("Escape leaves it, and the focus is where it was before the question", async () => {
  await shell.show(
    <>
      <textarea />
      <StateCardList />
    </>,
  );
  shell.find("textarea").focus();
  let ran = false;
  await act(() => {
    shell.desk.asking.value = { text: "Delete all?", yes: "Yes", run: () => Promise.resolve(void (ran = true)) };
  });
  const escape = new KeyboardEvent("keydown", { key: "Escape", bubbles: true, cancelable: true });
  await act(() => void document.activeElement?.dispatchEvent(escape));
  await act(() => new Promise<void>((done) => requestAnimationFrame(() => done())));
  expect(escape.defaultPrevented).toBe(true); // the panel would leave for the notebook
  expect([shell.desk.asking.value, ran]).toEqual([null, false]);
  expect(document.activeElement).toBe(shell.find("textarea"));
});

test("notes of the server about the notebook are shown as sentences for people", async () => {
  shell.server.notes = [
    '2 agent cell(s) of this notebook have no outputs, but the conversation still contains what their tools printed. To remove that too, run the magic command "agent clear outputs" in a cell.',
  ];
  await act(() => shell.conversation.bind("k1", "rain.ipynb"));
  await shell.show(<StateCardList />);
  expect(shell.page.textContent).toContain("2 agent cells of this notebook have no outputs");
});
