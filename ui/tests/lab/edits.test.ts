import { YNotebook } from "@jupyter/ydoc";
import { beforeEach, describe, expect, it } from "vitest";
import { accept, edit, insert, move, obstacle, remove, standing, TAG, undo } from "../../src/lab/edits";
import type { Change } from "../../src/turn/cellChanges";
import type { Facts } from "../../src/wire/schema";

const origin = { turn: "t", call: "c" };
let notebook: YNotebook;

function made(disableDocumentWideUndoRedo: boolean): YNotebook {
  return YNotebook.create({
    disableDocumentWideUndoRedo,
    data: {
      cells: ["one", "two", "three"].map((id) => ({
        id,
        cell_type: "code",
        source: `${id} = 1`,
        metadata: {},
        outputs: [{ output_type: "stream", name: "stdout", text: id }],
        execution_count: 1,
      })),
      metadata: {},
      nbformat: 4,
      nbformat_minor: 5,
    },
  });
}

beforeEach(() => {
  notebook = made(false);
});

const ids = () => notebook.cells.map((cell) => cell.id);
const source = (id: string) => notebook.cells.find((cell) => cell.id === id)?.getSource();

function change(given: Partial<Change>): Change {
  const blank = { call: "c", turn: "t", do: "edit", cell: "two", index: 1, notebook: "a.ipynb", type: "code" } as const;
  return { ...blank, before: "", after: "", below: "", from: "", kept: null, lost: "", ...given };
}

function edited(cell: string, to: string): Change {
  const before = source(cell) ?? "";
  edit(notebook, { cell, before, after: to }, origin);
  return change({ do: "edit", cell, before, after: to });
}

function inserted(below: string, text: string): Change {
  const made = insert(notebook, { below, type: "code", after: text }, origin);
  return change({ do: "insert", cell: made.cell, index: made.index, after: text, below });
}

function deleted(cell: string): Change {
  const place = ids().indexOf(cell);
  const before = source(cell) ?? "";
  const { kept, cell: gone } = remove(notebook, { cell, before });
  expect(gone).toBe(cell);
  return change({ do: "delete", cell, index: place, before, from: ids()[place - 1] ?? "", kept: kept ?? null });
}

function moved(cell: string, below: string): Change {
  const from = ids()[ids().indexOf(cell) - 1] ?? "";
  const before = source(cell) ?? "";
  move(notebook, { cell, below, before });
  return change({ do: "move", cell, before, after: before, below, from });
}

describe("a change of a live notebook", () => {
  it("puts a cell below another one or at the top, and marks it", () => {
    const made = inserted("one", "x = 2");
    const top = inserted("", "first");
    expect(ids()).toEqual([top.cell, "one", made.cell, "two", "three"]);
    expect(source(made.cell)).toBe("x = 2");
    expect(notebook.cells[2]?.getMetadata(TAG)).toEqual({ ...origin, made: true });
  });

  it("changes only what differs, and is one step of the notebook's own undo", () => {
    edited("two", "two = 12\nmore");
    expect(source("two")).toBe("two = 12\nmore");
    expect(notebook.cells[1]?.getMetadata(TAG)).toEqual({ ...origin, edited: true });
    notebook.undo();
    expect(source("two")).toBe("two = 1");
    expect(notebook.cells[1]?.getMetadata(TAG)).toBeUndefined();
  });

  it("does not part a character that is two halves", () => {
    for (const text of ["\u{1F600}", "\u{1F601}", "a\u{1F601}b", "\u{1F601}b", "\u{1F602}\u{1F602}", ""]) {
      edited("two", text);
      expect(source("two")).toBe(text);
    }
  });

  it("is refused when the cell is not as it was seen, is gone, or is protected", () => {
    const wrong: Facts = { cell: "two", before: "other", after: "x" };
    expect(() => edit(notebook, wrong, origin)).toThrow(/changed meanwhile/);
    expect(() => remove(notebook, wrong)).toThrow(/changed meanwhile/);
    expect(() => move(notebook, { ...wrong, below: "three" })).toThrow(/changed meanwhile/);
    expect(() => edit(notebook, { ...wrong, cell: "nowhere" }, origin)).toThrow(/is gone/);
    expect(() => insert(notebook, { below: "nowhere", after: "x" }, origin)).toThrow(/is gone/);
    notebook.cells[1]?.setMetadata("editable", false);
    notebook.cells[1]?.setMetadata("deletable", false);
    expect(() => edit(notebook, { cell: "two", before: "two = 1", after: "x" }, origin)).toThrow(/not to be edited/);
    expect(() => remove(notebook, { cell: "two", before: "two = 1" })).toThrow(/not to be deleted/);
    expect(notebook.cells.map((cell) => cell.getSource())).toEqual(["one = 1", "two = 1", "three = 1"]);
  });

  it("moves a cell up and down", () => {
    moved("one", "three");
    expect(ids()).toEqual(["two", "three", "one"]);
    moved("one", "");
    expect(ids()).toEqual(["one", "two", "three"]);
    moved("three", "one");
    expect(ids()).toEqual(["one", "three", "two"]);
  });
});

describe("undo of a turn", () => {
  it("brings back what was there, with outputs, in whatever order it was changed", () => {
    const was = notebook.toJSON();
    const turn = [
      edited("two", "two = 2"),
      inserted("two", "between"),
      deleted("three"),
      moved("one", "two"),
      edited("two", "two = 3"),
      inserted("", "top"),
      deleted("two"),
      inserted("", "higher"),
    ];
    expect(undo(notebook, turn).every((outcome) => outcome.done)).toBe(true);
    expect(notebook.toJSON()).toEqual(was);
  });

  it("is one step that the notebook's own undo takes back", () => {
    const turn = [edited("two", "two = 2"), inserted("two", "between")];
    const changed = notebook.toJSON();
    undo(notebook, turn);
    notebook.undo();
    expect(notebook.toJSON()).toEqual(changed);
  });

  it("leaves a cell that a person touched since, and says so", () => {
    const turn = [edited("two", "two = 2"), inserted("two", "between"), edited("one", "one = 2")];
    const own = notebook.cells.find((cell) => cell.id === turn[1]?.cell);
    own?.setSource("mine now");
    notebook.cells[1]?.setSource("two = 2 # why");
    const outcomes = undo(notebook, turn);
    expect(outcomes.map(({ done, why }) => [done, why])).toEqual([
      [false, "you have changed it"],
      [false, "you have changed it"],
      [true, ""],
    ]);
    expect(notebook.cells.map((cell) => cell.getSource())).toEqual([
      "one = 1",
      "two = 2 # why",
      "mine now",
      "three = 1",
    ]);
  });

  it("does nothing twice", () => {
    const turn = [edited("two", "two = 2"), inserted("two", "between"), deleted("three")];
    undo(notebook, turn);
    const was = notebook.toJSON();
    expect(undo(notebook, turn).every((outcome) => !outcome.done && outcome.needless)).toBe(true);
    expect(notebook.toJSON()).toEqual(was);
  });

  it("says why what is not kept can not come back", () => {
    const turn = [
      change({ cell: "two", after: "two = 1", lost: "its text held a key or a password, which is not kept" }),
    ];
    expect(undo(notebook, turn)).toMatchObject([{ done: false, why: turn[0]?.lost }]);
    expect(source("two")).toBe("two = 1");
  });
});

describe("in a notebook whose cells have an undo each, as is usual", () => {
  beforeEach(() => {
    notebook = made(true);
  });

  it("an edit is undone in its cell, and an undo of a turn in the notebook", () => {
    const turn = [edited("two", "two = 2"), inserted("two", "between"), deleted("three")];
    const changed = notebook.toJSON();
    undo(notebook, turn);
    expect(notebook.cells.map((cell) => cell.getSource())).toEqual(["one = 1", "two = 1", "three = 1"]);
    notebook.undo();
    expect(notebook.toJSON()).toEqual(changed);
    notebook.cells[1]?.undo();
    expect(source("two")).toBe("two = 1");
  });
});

describe("the standing of a change", () => {
  it("follows the document", () => {
    const made = inserted("one", "x");
    expect(standing(notebook, made)).toBe("open");
    accept(notebook, [made]);
    expect(standing(notebook, made)).toBe("accepted");
    const later = edited(made.cell, "y");
    expect([standing(notebook, made), standing(notebook, later)]).toEqual(["touched", "open"]);
    undo(notebook, [later]);
    expect(standing(notebook, later)).toBe("undone");
    undo(notebook, [made]);
    expect(standing(notebook, made)).toBe("gone");
    const gone = deleted("three");
    expect(standing(notebook, gone)).toBe("open");
    undo(notebook, [gone]);
    expect(standing(notebook, gone)).toBe("undone");
  });
});

it("says why a proposed change cannot be made any more, and follows the notebook", () => {
  const proposed = (given: Partial<Change>) => change({ cell: "two", before: "two = 1", after: "two = 2", ...given });
  const found = () => [
    obstacle(notebook, proposed({})),
    obstacle(notebook, proposed({ do: "delete" })),
    obstacle(notebook, proposed({ do: "insert", cell: "", below: "two" })),
    obstacle(notebook, proposed({ do: "insert", cell: "", below: "" })),
  ];
  expect(found()).toEqual(["", "", "", ""]);
  notebook.getCell(1).setSource("two = 3");
  expect(found()).toEqual(["changed", "changed", "", ""]);
  notebook.getCell(1).setSource("two = 1");
  expect(found()).toEqual(["", "", "", ""]);
  notebook.deleteCell(1);
  expect(found()).toEqual(["gone", "gone", "gone", ""]);
});
