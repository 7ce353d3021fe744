import { expect, test } from "vitest";
import { cellName, shownReference, shownTitle } from "../../src/turn/cellName";

test("cells are counted from 1 where people read of them", () => {
  expect(cellName(0)).toBe("cell 1");
});

test.each([
  ["3", "4"],
  ["0, 5-8", "1, 6-9"],
  ["cell-3", "cell-3"],
  ["In[4]", "In[4]"],
  ["3f2a", "3f2a"],
])("the reference %s of the model is shown as %s", (reference, shown) => {
  expect(shownReference(reference)).toBe(shown);
});

test.each([
  ["cell 0", "cell 1"],
  ["error of cell 3", "error of cell 4"],
  ["Output of cell 9", "Output of cell 10"],
  ["Selected in cell 0", "Selected in cell 1"],
  ["Cell 2, code, id 4f-3a", "Cell 3"],
  ["@cell 0 of mine", "@cell 0 of mine"],
  ["sales", "sales"],
])("the title %s of a note is shown as %s", (title, shown) => {
  expect(shownTitle(title)).toBe(shown);
});
