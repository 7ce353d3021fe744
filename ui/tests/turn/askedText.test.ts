import { afterEach, expect, test } from "vitest";
import german from "../../../jupyter_ext/locale/de_DE/LC_MESSAGES/agent_kernel.json";
import { askedText } from "../../src/turn/askedText";
import { ENGLISH, setTranslation, textsOf } from "../../src/translation/translation";

afterEach(() => setTranslation(ENGLISH));

const FIX = "Correct the cell In[2], which failed with NameError: x. Give the whole cell as it should be.";

test.each([
  [FIX, "Correct cell [2], which failed with NameError: x"],
  [`${FIX} It makes a, b.`, "Correct cell [2], which failed with NameError: x"],
  [`${FIX} It makes a.\nuse the mean\nof b`, "Correct cell [2], which failed with NameError: x\nuse the mean\nof b"],
  ["Explain in plain words what the cell In[2] does.", "Explain cell [2]"],
  [
    "Explain in plain words what the cell In[2] does and why it failed with NameError: x.",
    "Explain cell [2], which failed with NameError: x",
  ],
  [
    "Write the cell In[2] better, clearer or faster. It prints the same and makes equal variables. It makes total.",
    "Improve cell [2]",
  ],
  ["Correct the cell In[2], please.", "Correct the cell In[2], please."],
  ["", ""],
])("a prompt that a command writes for the model is shown as a sentence for people: %s", (prompt, shown) => {
  expect(askedText(prompt)).toBe(shown);
});

test("the sentence is in the user's language", () => {
  setTranslation({ texts: textsOf(german), language: "de" });
  expect(askedText(FIX)).toBe("Zelle [2] korrigieren, die mit NameError: x abbrach");
});
