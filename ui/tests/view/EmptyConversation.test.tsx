import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test } from "vitest";
import { EmptyConversation } from "../../src/view/EmptyConversation";
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
