import { describe, expect, test } from "vitest";
import { after, emptyTurn, type TurnView } from "../src/turn/turn";
import type { Bodies, EventType, TurnEvent } from "../src/wire/events";

function events(...bodies: { [Type in EventType]: [Type, Bodies[Type]] }[EventType][]): TurnEvent[] {
  return bodies.map(
    ([type, data], index) =>
      ({ seq: index + 1, turn: "t", session: "s", round: 1, time: index, type, data }) as TurnEvent,
  );
}

const shown = (all: TurnEvent[]): TurnView => all.reduce(after, emptyTurn("t", "s"));

describe("a turn", () => {
  test("joins deltas of one stream and begins another block for another stream", () => {
    const turn = shown(
      events(["reasoning.delta", { text: "hm" }], ["text.delta", { text: "a" }], ["text.delta", { text: "b" }]),
    );
    expect(turn.blocks.map((block) => [block.kind, "text" in block && block.text, block.done])).toEqual([
      ["reasoning", "hm", true],
      ["text", "ab", false],
    ]);
  });

  test("is not changed by an event it has", () => {
    const all = events(["text.delta", { text: "a" }]);
    const turn = shown(all);
    expect(shown([...all, ...all])).toEqual(turn);
  });

  test("keeps finished blocks as they are, so that they are not rendered again", () => {
    const before = shown(events(["notice", { level: "info", text: "x" }], ["text.delta", { text: "a" }]));
    const grown = after(before, { ...events(["text.delta", { text: "b" }])[0], seq: 3 } as TurnEvent);
    expect(grown.blocks[0]).toBe(before.blocks[0]);
  });
});
