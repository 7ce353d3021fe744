/** The footer of a turn whose changes of cells are taken back in a real notebook document. */
import { signal } from "@preact/signals";
import { YNotebook } from "@jupyter/ydoc";
import { act } from "preact/test-utils";
import { afterEach, expect, test } from "vitest";
import { edit, insert, remove, standing, undo } from "../../src/lab/edits";
import type { ChangeKeeper, NotebookHost } from "../../src/notebook/notebook";
import { undoTurn } from "../../src/notebook/undo";
import type { Facts } from "../../src/wire/schema";
import { call, finished, more, over, type Said } from "../turn/events";
import { Stage, turnOf } from "./stage";

const ORIGIN = { turn: "t", call: "c" };
let stage: Stage | null = null;
afterEach(() => stage?.close());

function openNotebook() {
  const cells = ["one", "two", "three"].map((id) => ({ id, cell_type: "code", source: id, metadata: {}, outputs: [] }));
  const notebook = YNotebook.create({ data: { cells, metadata: {}, nbformat: 4, nbformat_minor: 5 } });
  const version = signal(0);
  const keeper: ChangeKeeper = {
    version,
    standing: (change) => standing(notebook, change),
    undo: (changes) => undo(notebook, changes),
    obstacle: () => "",
    place: () => 0,
    accept: () => undefined,
    apply: () => "",
  };
  const host = { changes: keeper, bound: signal(null), activeCell: signal(null) } as unknown as NotebookHost;
  const grow = () => {
    version.value += 1;
  };
  return { notebook, host, changed: () => void act(grow) };
}

const made = (id: string, name: string, change: Facts): Said[] => [
  call(id, name),
  finished(id, { name, details: { change: { turn: "t", notebook: "a.ipynb", ...change } } }),
];

test("changes of cells that are undone are no longer counted", () => {
  const { notebook, host, changed } = openNotebook();
  edit(notebook, { cell: "one", before: "one", after: "1" }, ORIGIN);
  edit(notebook, { cell: "one", before: "1", after: "11" }, ORIGIN);
  const added = insert(notebook, { below: "two", type: "code", after: "new" }, ORIGIN).cell;
  edit(notebook, { cell: added, before: "new", after: "newer" }, ORIGIN);
  const { kept } = remove(notebook, { cell: "three", before: "three" });
  const turn = more(
    turnOf("t"),
    ...made("a", "edit_cell", { cell: "one", before: "one", after: "1" }),
    ...made("b", "edit_cell", { cell: "one", before: "1", after: "11" }),
    ...made("c", "insert_cell", { cell: added, after: "new", below: "two" }),
    ...made("d", "edit_cell", { cell: added, before: "new", after: "newer" }),
    ...made("e", "delete_cell", { cell: "three", before: "three", from: added, kept: kept ?? null }),
    ["file.produced", { call: "", file: { id: "1" } }],
    over(),
  );
  stage = new Stage(host);
  stage.show(turn);
  const footer = () => stage?.find("footer .ak-facts").textContent.replaceAll("\u00a0", " ");
  expect(footer()).toMatch(/2 cells changed · 1 cell added · 1 cell deleted · 1 file$/);

  undoTurn(host, turn);
  changed();
  expect(notebook.cells.map((cell) => cell.getSource())).toEqual(["one", "two", "three"]);
  expect(footer()).not.toContain("cell");
  expect(footer()).toMatch(/1 file$/);
});

test("a change that the user went on with, or whose notebook is closed, is still counted", () => {
  const { notebook, host, changed } = openNotebook();
  edit(notebook, { cell: "one", before: "one", after: "1" }, ORIGIN);
  const turn = more(turnOf("t"), ...made("a", "edit_cell", { cell: "one", before: "one", after: "1" }), over());
  edit(notebook, { cell: "one", before: "1", after: "my own" }, ORIGIN);
  stage = new Stage(host);
  stage.show(turn);
  changed();
  expect(stage.find("footer .ak-facts").textContent).toContain("1 cell changed");
  stage.close();
  stage = new Stage(null);
  stage.show(turn);
  expect(stage.find("footer .ak-facts").textContent).toContain("1 cell changed");
});
