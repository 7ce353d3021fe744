import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Session } from "../../src/wire/schema";
import { asks, call, finished, more, over } from "../turn/events";
import { Stage, turnOf } from "./stage";

let stage: Stage;
beforeEach(() => {
  stage = new Stage();
});
afterEach(() => stage.close());

const pass = (ms: number) => void act(() => void vi.advanceTimersByTime(ms));
const quiet = () => stage.find(".ak-aloud[role=status]").textContent;
const urgent = () => stage.find(".ak-aloud[role=alert]").textContent;

test("the conversation itself is not read: what is finished is, once", () => {
  expect(stage.find("[role=log]").getAttribute("aria-live")).toBe("off");
  let turn = turnOf("t");
  const [entry] = stage.show(turn);
  stage.grow(entry, (turn = more(turn, ["text.delta", { text: "It is" }])));
  stage.grow(entry, (turn = more(turn, ["text.delta", { text: " 42." }])));
  expect(quiet()).toBe("");
  stage.grow(entry, more(turn, over()));
  expect(quiet()).toBe("It is 42.\nDone");
});

test("a question is read when it stands, and is gone when it is answered", () => {
  vi.useFakeTimers();
  let turn = turnOf("t");
  const [entry] = stage.show(turn);
  stage.grow(entry, (turn = more(turn, call("c", "python", { code: "x = 1" }), asks("c"))));
  pass(1_000);
  expect(urgent()).toContain("Your answer is needed: Run x = 1 in your kernel?");
  const answer = { approval: "a", call: "c", decision: "approve", reason: "", edited: null };
  stage.grow(entry, more(turn, ["approval.resolved", answer]));
  expect(urgent()).toBe("");
  vi.useRealTimers();
});

test("a question that is answered by what was allowed before is not read", () => {
  vi.useFakeTimers();
  let turn = turnOf("t");
  const [entry] = stage.show(turn);
  stage.grow(entry, (turn = more(turn, call("c", "python", { code: "x = 1" }), asks("c"))));
  pass(50);
  stage.grow(
    entry,
    more(turn, ["approval.resolved", { approval: "a", call: "c", decision: "approve", reason: "", edited: null }]),
  );
  pass(1_000);
  expect(urgent()).toBe("");
  vi.useRealTimers();
});

test("a conversation that is opened is not read from its beginning", () => {
  stage.show(more(turnOf("t"), ["text.delta", { text: "Old." }], call("c"), finished("c"), over()));
  expect(quiet() + urgent()).toBe("");
});

test("the answer of another notebook's conversation is not left to be read", () => {
  const { session } = stage.conversation;
  const [entry] = stage.show(turnOf("t"));
  void act(() => void (session.value = { id: "s" } as Session));
  stage.grow(entry, more(turnOf("t"), ["text.delta", { text: "It is 42." }], over()));
  expect(quiet()).toBe("It is 42.\nDone");
  void act(() => void (session.value = null));
  expect(quiet() + urgent()).toBe("");
});
