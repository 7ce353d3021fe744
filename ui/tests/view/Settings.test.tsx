import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Settings } from "../../src/view/Settings";
import { Desked } from "./desked";

let shell: Desked;
beforeEach(() => {
  shell = new Desked();
});
afterEach(() => shell.close());

test("the rules begin with where code runs, and a kind that is not known comes last", async () => {
  const rule = { permission: "ask", because: "" };
  shell.server.policy = { dispatch: rule, "new.kind": rule, "python.sandbox": rule, "python.live": rule };
  await shell.show(<Settings />);
  await act(() => shell.server.settled());
  const rows = [...shell.page.querySelectorAll(".ak-facts dt")].map((row) => row.textContent);
  expect(rows).toEqual(["Python in your kernel", "Python in the sandbox", "Functions on other machines", "new.kind"]);
});
