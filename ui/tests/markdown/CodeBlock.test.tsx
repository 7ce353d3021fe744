import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { CodeBlock } from "../../src/markdown/CodeBlock";
import { Desked } from "../view/desked";

const RUN = "Ask to run it in the sandbox";

let shell: Desked;
beforeEach(() => {
  shell = new Desked();
});
afterEach(() => shell.close());

test("a piece of code that the server does not take was not sent, and says so", async () => {
  await shell.show(<CodeBlock code="x = 1" language="python" />);
  shell.server.refuses = true;
  await shell.press(RUN);
  expect(shell.find("[role=status]").textContent).toBe("The message was not sent.");
  shell.server.refuses = false;
  await shell.press(RUN);
  expect(shell.find("[role=status]").textContent).toBe("Sent");
});

test("two clicks send it once", async () => {
  let answer: (taken: boolean) => void = () => undefined;
  const send = vi.spyOn(shell.conversation, "send").mockImplementation(() => new Promise((done) => (answer = done)));
  await shell.show(<CodeBlock code="x = 1" language="python" />);
  await shell.press(RUN);
  await shell.press(RUN);
  expect(send).toHaveBeenCalledOnce();
  await act(() => answer(true));
  await shell.press(RUN);
  expect(send).toHaveBeenCalledTimes(2);
});
