import type { INotebookTracker } from "@jupyterlab/notebook";
import { YNotebook } from "@jupyter/ydoc";
import { signal } from "@preact/signals";
import { expect, test } from "vitest";
import { LabChanges } from "../../src/lab/changes";
import type { Change } from "../../src/turn/cellChanges";

const PROPOSED: Change = {
  ...{ call: "c", turn: "t", do: "edit", cell: "one", index: 0, notebook: "a.ipynb", type: "code" },
  ...{ before: "x = 1", after: "x = 2", below: "", from: "", kept: null, lost: "" },
};

function changesOf(cells: { id: string; source: string; metadata?: { editable: boolean } }[]): LabChanges {
  const sharedModel = YNotebook.create({
    data: {
      cells: cells.map((cell) => ({ cell_type: "code", metadata: {}, outputs: [], execution_count: null, ...cell })),
      metadata: {},
      nbformat: 4,
      nbformat_minor: 5,
    },
  });
  const silent = { connect: () => true };
  const panel = {
    content: { model: { sharedModel }, modelContentChanged: silent },
    context: { localPath: "a.ipynb", isReady: true, ready: Promise.resolve() },
    disposed: silent,
  };
  const tracker = { widgetAdded: silent, forEach: (each: (panel: unknown) => void) => each(panel) };
  return new LabChanges(tracker as unknown as INotebookTracker, signal);
}

test("a proposed edit that the user accepts is made", () => {
  const changes = changesOf([{ id: "one", source: "x = 1" }]);
  expect(changes.apply(PROPOSED)).toBe("");
  expect(changes.standing(PROPOSED)).toBe("accepted");
});

test.each([
  ["The cell has been deleted.", { id: "two", source: "x = 1" }],
  ["The cell has been changed, so its text stays.", { id: "one", source: "x = 3" }],
  ["The notebook protects this cell from changes.", { id: "one", source: "x = 1", metadata: { editable: false } }],
])("the user reads why an accepted edit was not made, without words for the model: %s", (reason, cell) => {
  expect(changesOf([cell]).apply(PROPOSED)).toBe(reason);
});
