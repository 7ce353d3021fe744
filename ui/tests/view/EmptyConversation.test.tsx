import { signal } from "@preact/signals";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Desk } from "../../src/conversation/panelState";
import { EmptyConversation, starters } from "../../src/view/EmptyConversation";
import { Desked } from "./desked";

let shell: Desked;
beforeEach(() => {
  shell = new Desked();
});
afterEach(() => shell.close());

test("nothing is suggested before the server says which conversation the notebook has", async () => {
  await shell.show(<EmptyConversation />);
  let bound = Promise.resolve();
  void act(() => {
    bound = shell.conversation.bind("k1", "rain.ipynb");
  });
  expect(shell.page.textContent).toBe("");
  await act(() => bound);
  expect(shell.page.textContent).toContain("Ask about this notebook");
});

test("an empty notebook is neither described nor summed up", () => {
  const suggested = (cells: string[], source: string): string[] => {
    const notebook = { activeCell: signal({ source }), places: { cells: () => cells } };
    const place = signal({ kernel: "k1", path: "rain.ipynb" });
    return starters({ conversation: { notebook, place } } as unknown as Desk).map(({ label }) => label);
  };
  expect(suggested(["a"], "")).toEqual(["Draw a first plot", "Say what you can do here"]);
  expect(suggested(["a", "b"], "")).toEqual(["Describe the variables", "Sum up this notebook", "Draw a first plot"]);
  expect(suggested(["a"], "x = 1")).toEqual([
    "Explain the active cell",
    "Describe the variables",
    "Sum up this notebook",
  ]);
});
