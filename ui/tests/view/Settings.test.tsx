import { signal } from "@preact/signals";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { NotebookHost } from "../../src/notebook/notebook";
import { Settings } from "../../src/view/Settings";
import { Desked } from "./desked";

let shell: Desked;
beforeEach(() => {
  shell = new Desked();
});
afterEach(() => shell.close());

const rules = () => [...shell.page.querySelectorAll(".ak-facts dt")].map((row) => row.textContent);

test("a page without notebooks lists no rules for notebooks", async () => {
  const rule = { permission: "ask", because: "" };
  shell.server.policy = { "python.live": rule, "python.draft": rule, "notebook.edit": rule, "files.read": rule };
  await shell.show(<Settings />);
  await act(() => shell.server.settled());
  expect(rules()).toEqual(["Read files of the conversation"]);
});

test("the rules begin with where code runs, and a kind that is not known comes last", async () => {
  const rule = { permission: "ask", because: "" };
  shell.server.policy = { dispatch: rule, "new.kind": rule, "python.sandbox": rule, "python.live": rule };
  await shell.show(<Settings />, { notebook: { bound: signal(null) } as unknown as NotebookHost });
  await act(() => shell.server.settled());
  expect(rules()).toEqual([
    "Python in your kernel",
    "Python in the sandbox",
    "Functions on other machines",
    "new.kind",
  ]);
});
