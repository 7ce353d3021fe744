import { describe, expect, it } from "vitest";
import german from "../../../jupyter_ext/locale/de_DE/LC_MESSAGES/agent_kernel.json";
import { changeOf, changesOf, effectsOf, isSuperseded } from "../../src/turn/cellChanges";
import { applyEvent, emptyTurn } from "../../src/turn/turn";
import { ENGLISH, setTranslation, textsOf } from "../../src/translation/translation";
import type { Bodies, EventType, TurnEvent } from "../../src/wire/events";
import type { Facts } from "../../src/wire/schema";

let seq = 0;
function event<Type extends EventType>(type: Type, data: Bodies[Type]): TurnEvent {
  return { seq: ++seq, turn: "t", session: "s", round: 1, time: seq, type, data } as TurnEvent;
}

export function call(id: string, name: string, details: Facts, where = "client"): TurnEvent[] {
  const end = { call: id, name, status: "success", text: "", seconds: 0, media: [], details, files: [] };
  return [event("call.started", { call: id, name, arguments: {}, where }), event("call.finished", end)];
}

const edit = (before: string, after: string): Facts => ({
  change: { do: "edit", cell: "one", index: 0, notebook: "a.ipynb", turn: "t", before, after },
});

describe("changes of a turn", () => {
  it("are read from the details of its calls, in order", () => {
    const turn = [
      ...call("1", "edit_cell", edit("a", "b")),
      ...call("2", "python", {}),
      ...call("3", "edit_cell", edit("b", "c")),
    ].reduce(applyEvent, emptyTurn("t", "s"));
    const changes = changesOf(turn);
    expect(changes.map((change) => [change.before, change.after])).toEqual([
      ["a", "b"],
      ["b", "c"],
    ]);
    expect(changes.map((change) => isSuperseded(turn, change))).toEqual([true, false]);
  });

  it("are none where the details are not what they should be", () => {
    const told = (details: unknown) => changeOf({ id: "1", name: "edit_cell", details: details as Facts });
    for (const odd of [{}, { change: null }, { change: "x" }, { change: [] }, { change: { cell: 3 } }]) {
      expect(told(odd)).toBeNull();
    }
    expect(changeOf({ id: "1", name: "python", details: edit("a", "b") })).toBeNull();
    expect(told({ change: { cell: "one", before: { toString: "x" }, index: "1" } })).toMatchObject({
      before: "",
      index: -1,
    });
  });

  it("say in the user's language why their texts are not stored", () => {
    const reasons = [
      "its text contained a key or a password, which is not stored",
      "the changes of the turn are too large to be stored",
    ];
    const lost = (reason: string) =>
      changeOf({ id: "1", name: "edit_cell", details: { change: { cell: "one", lost: reason } } })?.lost;
    expect(reasons.map(lost)).toEqual(reasons);
    setTranslation({ texts: textsOf(german), language: "de" });
    try {
      expect(reasons.map(lost)).toEqual([
        "der Text enthielt einen Schlüssel oder ein Passwort, was nicht gespeichert wird",
        "die Änderungen dieser Frage sind zu groß, um gespeichert zu werden",
      ]);
    } finally {
      setTranslation(ENGLISH);
    }
  });

  it("leave effects that no undo reaches, and say them", () => {
    const turn = [
      ...call("1", "run_cells", {}, "live"),
      ...call("2", "python", {}, "sandbox"),
      ...call("3", "shell", {}),
    ].reduce(applyEvent, emptyTurn("t", "s"));
    expect(effectsOf(turn)).toEqual([
      "code that ran in the kernel (one call), and its variables",
      "the effects of shell commands",
    ]);
  });
});
