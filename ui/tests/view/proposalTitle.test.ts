import { afterEach, expect, test } from "vitest";
import german from "../../../jupyter_ext/locale/de_DE/LC_MESSAGES/agent_kernel.json";
import { ENGLISH, setTranslation, translationFor } from "../../src/translation/translation";
import { proposalTitle } from "../../src/view/proposalTitle";

afterEach(() => setTranslation(ENGLISH));

const CHANGE = { cell: "a", type: "code", before: "", after: "", below: "" };

test("a title begins with a capital letter, also where the cell comes first", () => {
  setTranslation(translationFor("de-DE", { de: german }));
  expect(proposalTitle({ ...CHANGE, do: "edit" }, ["a"], true)).toBe("Diese Zelle ändern?");
  expect(proposalTitle({ ...CHANGE, do: "insert" }, ["a"], true)).toMatch(/^[A-Z]/);
});
