import { describe, expect, test } from "vitest";
import { applyEvent } from "../../src/turn/turn";
import type { TurnEvent } from "../../src/wire/events";
import { asks, call, events, finished, more, over, shown } from "./events";

describe("a turn", () => {
  test("joins deltas of one stream and begins another block for another stream", () => {
    const turn = shown(
      ["reasoning.delta", { text: "hm" }],
      ["text.delta", { text: "a" }],
      ["text.delta", { text: "b" }],
    );
    expect(turn.blocks.map((block) => [block.kind, "text" in block && block.text, block.done])).toEqual([
      ["reasoning", "hm", true],
      ["text", "ab", false],
    ]);
  });

  test("is not changed by an event it has", () => {
    const all = events(["text.delta", { text: "a" }]);
    const turn = shown(["text.delta", { text: "a" }]);
    expect(all.reduce(applyEvent, turn)).toBe(turn);
  });

  test("keeps finished blocks as they are, so that they are not rendered again", () => {
    const before = shown(["notice", { level: "info", text: "x", details: "" }], ["text.delta", { text: "a" }]);
    const grown = applyEvent(before, { ...events(["text.delta", { text: "b" }])[0], seq: 3 } as TurnEvent);
    expect(grown.blocks[0]).toBe(before.blocks[0]);
  });

  test("knows how long a stream of words took", () => {
    const turn = shown(["reasoning.delta", { text: "h" }], ["reasoning.delta", { text: "m" }], over());
    expect(turn.blocks[0]).toMatchObject({ began: 100, ended: 101, done: true });
  });

  test("shows a correction in place of the call that it corrects", () => {
    const failed = { status: "error", text: "KeyError: 'a'" };
    const turn = shown(call("c1"), finished("c1", failed), call("c1-fix"), finished("c1-fix"));
    expect(turn.blocks).toHaveLength(1);
    expect(turn.blocks[0]).toMatchObject({ id: "c1-fix", status: "success", corrects: { id: "c1", status: "error" } });
  });

  test("tells its place in the queue until its turn comes", () => {
    const waits = shown(["queued", { position: 2, reason: "another turn runs" }]);
    expect(waits).toMatchObject({ place: 2, waiting: "another turn runs" });
    const runs = more(waits, ["turn.started", { model: "m", local: true, where: "live", host: "" }]);
    expect(runs).toMatchObject({ place: 0, waiting: "" });
  });

  test("shows a call that its caller runs as handed over, and over", () => {
    const turn = shown(
      ["text.delta", { text: "a" }],
      ["call.returned", { call: "c", name: "weather", arguments: { city: "Ulm" } }],
      over(),
    );
    expect(turn.blocks).toMatchObject([
      { kind: "text", done: true },
      { kind: "call", name: "weather", where: "caller", status: "returned", done: true },
    ]);
  });

  test("shows how far a model is loaded until it speaks", () => {
    const loads = shown(["model.loading", { model: "m", stage: "loading", fraction: 0.4 }]);
    expect(loads).toMatchObject({ waiting: "m: loading", loading: 0.4 });
    expect(more(loads, ["text.delta", { text: "a" }])).toMatchObject({ waiting: "", loading: null });
    expect(more(loads, call("c"))).toMatchObject({ waiting: "", loading: null });
  });

  test("keeps the end of output that does not end, and counts what it lets go", () => {
    const line = "x".repeat(60_000);
    const printed = Array.from(
      { length: 10 },
      () => ["call.output", { call: "c", text: line, stream: "stdout" }] as const,
    );
    const [block] = shown(call("c"), ...printed.map((one) => [...one] as ["call.output", (typeof one)[1]])).blocks;
    if (block?.kind !== "call") throw new Error("no call");
    expect(block.output.length).toBeLessThanOrEqual(200_000);
    expect(block.output.length + block.cut).toBe(600_000);
  });

  test("gives an approval that was decided anywhere its decision, and the call goes on", () => {
    const waits = shown(call("c"), asks("c"));
    expect(waits.blocks[0]).toMatchObject({ status: "waiting", approval: { decision: "" } });
    const decided = more(waits, [
      "approval.resolved",
      { approval: "appr_c", call: "c", decision: "deny", reason: "denied: not now", edited: null },
    ]);
    expect(decided.blocks[0]).toMatchObject({
      approval: { decision: "deny", reason: "denied: not now", edited: null },
    });
    expect(more(decided, finished("c", { status: "denied" })).blocks[0]).toMatchObject({
      status: "denied",
      done: true,
    });
  });

  test("that ends leaves no call running", () => {
    const turn = shown(call("c"), over({ state: "cancelled", reason: "stopped" }));
    expect(turn.blocks[0]).toMatchObject({ status: "interrupted", done: true });
  });

  test("keeps files of calls with their calls and other files with itself", () => {
    const turn = shown(
      call("c"),
      ["file.produced", { call: "c", file: { id: "1" } }],
      ["file.produced", { call: "", file: { id: "2" } }],
    );
    expect(turn.blocks[0]).toMatchObject({ files: [{ id: "1" }] });
    expect(turn.files).toEqual([{ id: "2" }]);
  });
});

test("the text of a turn whose server was killed stays, without the server's words for programs", () => {
  const text = "The live events of this turn no longer exist. Read its stored events from the beginning (after=0).";
  const view = shown(
    ["text.delta", { text: "Once upon" }],
    ["notice", { level: "info", text, details: "" }],
    over({ state: "interrupted" }),
  );
  expect(view.blocks).toMatchObject([{ kind: "text", text: "Once upon", done: true }]);
  expect(view.unsaved).toBe(true);
});
