import { signal } from "@preact/signals";
import { expect, test } from "vitest";
import type { ChangeKeeper, Standing } from "../../src/notebook/notebook";
import { itemsOf } from "../../src/review/items";
import type { Change } from "../../src/turn/cellChanges";
import type { TurnView } from "../../src/turn/turn";
import type { Facts } from "../../src/wire/schema";
import { asks, call, finished, more } from "../turn/events";
import { turnOf } from "../view/stage";

const CELLS = ["a", "b", "c"];
const standings = new Map<string, Standing>();
const keeper: ChangeKeeper = {
  version: signal(0),
  standing: ({ call }) => standings.get(call) ?? "open",
  obstacle: () => "" as const,
  place: () => 0,
  undo: () => [],
  accept: () => undefined,
  apply: () => "",
};

interface About {
  isLive?: boolean;
  dismissed?: string[];
  corrections?: Change[];
}

function shown(turn: TurnView, about: About = {}) {
  const { isLive = true, dismissed = [], corrections = [] } = about;
  const given = { turns: [turn], keeper, corrections, cells: CELLS };
  const input = { ...given, isLive: () => isLive, dismissed: new Set(dismissed) };
  return itemsOf(input).map((item) => [item.call, item.do, item.cell, item.side, item.change ? "made" : "proposed"]);
}

const proposal = (name: string, given: Facts): TurnView =>
  more(turnOf("t"), call("p", name), asks("p", { name, arguments: { diff: "+", before: "", after: "x", ...given } }));

const made = (turn: TurnView, id: string, name: string, change: Facts): TurnView =>
  more(turn, call(id, name), finished(id, { details: { change: { turn: "t", before: "", after: "x", ...change } } }));

test.each([
  ["edit_cell", { cell: "b" }, ["b", "input"]],
  ["delete_cell", { cell: "b" }, ["b", "input"]],
  ["move_cell", { cell: "c", below: "a" }, ["c", "input"]],
  ["insert_cell", { below: "b" }, ["b", "below"]],
  ["insert_cell", { below: "" }, ["a", "above"]],
])("a proposed %s with %j stands at its cell", (name, given, place) => {
  expect(shown(proposal(name, given))).toEqual([["p", name.replace("_cell", ""), ...place, "proposed"]]);
});

test("a proposal of another notebook, one that is answered, and code are no changes of cells", () => {
  expect(shown(proposal("edit_cell", { cell: "elsewhere" }))).toEqual([]);
  const resolved = { approval: "appr_p", call: "p", decision: "deny", reason: "", edited: null };
  expect(shown(more(proposal("edit_cell", { cell: "b" }), ["approval.resolved", resolved]))).toEqual([]);
  expect(shown(more(turnOf("t"), call("p"), asks("p")))).toEqual([]);
});

test("changes that were made stand in the order of the cells until they are accepted, undone or changed", () => {
  let turn = made(turnOf("t"), "1", "edit_cell", { cell: "c" });
  turn = made(turn, "2", "edit_cell", { cell: "a" });
  turn = made(turn, "3", "delete_cell", { cell: "gone", from: "b" });
  expect(shown(turn)).toEqual([
    ["2", "edit", "a", "input", "made"],
    ["3", "delete", "b", "below", "made"],
    ["1", "edit", "c", "input", "made"],
  ]);
  for (const standing of ["accepted", "undone", "touched", "gone", "closed"] as const) {
    standings.set("1", standing);
    expect(shown(turn).map(([id]) => id)).toEqual(["2", "3"]);
  }
  standings.clear();
  expect(shown(turn, { dismissed: ["t 3"] }).map(([id]) => id)).toEqual(["2", "1"]);
});

test("a change that is replaced later in its turn is not reviewed, nor a deletion of an earlier visit", () => {
  let turn = made(turnOf("t"), "1", "edit_cell", { cell: "a" });
  turn = made(turn, "2", "edit_cell", { cell: "a" });
  turn = made(turn, "3", "delete_cell", { cell: "gone", from: "" });
  expect(shown(turn, { isLive: false })).toEqual([["2", "edit", "a", "input", "made"]]);
});

test("the newest correction of a cell stands at it while the cell has the source that failed", () => {
  const texts = { do: "edit", type: "code", before: "1 +", after: "1 + 1", below: "", from: "" } as const;
  const correction = (call: string, turn: string): Change => ({
    ...{ ...texts, call, turn, cell: "b", index: 1, notebook: "a.ipynb", kept: null, lost: "" },
  });
  const corrections = [correction("first", "t"), correction("fix", "t"), correction("other", "elsewhere")];
  standings.set("first", "undone").set("fix", "undone").set("other", "accepted");
  expect(shown(turnOf("t"), { corrections })).toEqual([["fix", "edit", "b", "input", "proposed"]]);
  standings.set("fix", "accepted").set("first", "accepted");
  expect(shown(turnOf("t"), { corrections })).toEqual([]);
  standings.clear();
});
