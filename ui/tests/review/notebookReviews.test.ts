import { signal } from "@preact/signals";
import { afterEach, expect, test, vi } from "vitest";
import type { Conversation } from "../../src/conversation/conversation";
import type { PanelHost } from "../../src/conversation/panelContext";
import type { ChangeKeeper, NotebookPlaces } from "../../src/notebook/notebook";
import { NotebookReviews } from "../../src/review/notebookReviews";
import type { TurnView } from "../../src/turn/turn";
import { asks, call, finished, more } from "../turn/events";
import { turnOf } from "../view/stage";

const CELLS = ["a", "b"];
const keeper: ChangeKeeper = {
  version: signal(0),
  standing: () => "open",
  obstacle: () => "" as const,
  place: () => 0,
  undo: () => [],
  accept: () => undefined,
  apply: () => "",
};
let reviews: NotebookReviews | undefined;

afterEach(() => {
  reviews?.dispose();
  document.body.replaceChildren();
});

const proposes = (turn: TurnView, id: string, cell: string): TurnView => {
  const given = { diff: "+", before: "", after: "x", cell };
  return more(turn, call(id, "edit_cell"), asks(id, { name: "edit_cell", arguments: given }));
};

const decided = (turn: TurnView, id: string): TurnView =>
  more(turn, ["approval.resolved", { approval: `appr_${id}`, call: id, decision: "deny", reason: "", edited: null }]);

/** A notebook with cells that can have the focus, and places for cards in them. */
function places(): NotebookPlaces {
  const notebook = document.createElement("div");
  notebook.className = "jp-NotebookPanel";
  const elements = new Map<string, HTMLElement>();
  for (const id of CELLS) {
    const cell = document.createElement("div");
    cell.className = "jp-Cell";
    cell.id = id;
    cell.tabIndex = 0;
    notebook.append(cell);
  }
  document.body.append(notebook);
  return {
    version: signal(0),
    cells: () => CELLS,
    written: () => [],
    at(key, cell) {
      const element = elements.get(key) ?? document.createElement("div");
      elements.set(key, element);
      document.getElementById(cell)?.append(element);
      return element;
    },
    remove: (key) => elements.get(key)?.remove(),
    bar: () => null,
    removeBar: () => undefined,
    scrollTo: () => Promise.resolve(),
    focus: (cell) => document.getElementById(cell)?.focus(),
  };
}

function review() {
  const turn = signal(turnOf("t"));
  const entry = { id: "t", view: turn };
  const session = { id: "s" };
  const conversation = {
    binding: signal({ session }),
    session: signal(session),
    entries: signal([entry]),
    running: signal([entry]),
    corrections: { proposed: signal([]) },
    place: signal({ kernel: "k", path: "a.ipynb" }),
  } as unknown as Conversation;
  vi.spyOn(HTMLElement.prototype, "getClientRects").mockReturnValue([{}] as unknown as DOMRectList); // all are in sight
  HTMLElement.prototype.scrollIntoView = () => undefined; // jsdom has none
  reviews = new NotebookReviews(conversation, {} as PanelHost, places(), keeper, () => undefined);
  return { turn, reviews };
}

const cardAt = (cell: string) => document.querySelector(`#${cell} .ak-cell-review`);
const press = () =>
  document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));

test("the next proposal takes the focus of the card that was answered, though the notebook moved it meanwhile", async () => {
  const { turn, reviews } = review();
  turn.value = proposes(turn.value, "1", "a");
  await reviews.go(1);
  expect(document.activeElement).toBe(cardAt("a"));
  press();
  turn.value = decided(turn.value, "1");
  document.querySelector<HTMLElement>("#b")?.focus(); // as JupyterLab does when the active cell changes
  turn.value = proposes(turn.value, "2", "b");
  await vi.waitFor(() => expect(document.activeElement).toBe(cardAt("b")));
  document.querySelector<HTMLElement>("#b")?.focus();
  await vi.waitFor(() => expect(document.activeElement).toBe(cardAt("b")));
});

test("a user who pressed a key after the answer keeps the focus", async () => {
  const { turn, reviews } = review();
  turn.value = proposes(turn.value, "1", "a");
  await reviews.go(1);
  turn.value = decided(turn.value, "1");
  await new Promise((resolve) => setTimeout(resolve, 5)); // the clock of the page may have steps of a millisecond
  press();
  const focused = document.activeElement;
  turn.value = proposes(turn.value, "2", "b");
  await vi.waitFor(() => expect(cardAt("b")).not.toBeNull());
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(document.activeElement).toBe(focused);
});

test("a cell that was changed twice and undone does not count as changed", () => {
  const { turn, reviews } = review();
  const changed = (id: string, cell: string) => [
    call(id, "edit_cell"),
    finished(id, { name: "edit_cell", details: { change: { cell, before: id, after: `${id}2` } } }),
  ];
  turn.value = more(turn.value, ...changed("1", "a"), ...changed("2", "a"), ...changed("3", "b"));
  expect(reviews.changedCells(turn.value)).toBe(2);
  vi.spyOn(keeper, "standing").mockImplementation(
    (change) => (({ "1": "undone", "2": "touched", "3": "open" }) as const)[change.call] ?? "open",
  );
  expect(reviews.changedCells(turn.value)).toBe(1);
});
