import { afterEach, beforeEach, expect, test } from "vitest";
import { asks, call, finished, more, over } from "../turn/events";
import { Stage, turnOf } from "./stage";

let stage: Stage;
beforeEach(() => {
  stage = new Stage();
});
afterEach(() => stage.close());

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

test("a question is read at once", () => {
  let turn = turnOf("t");
  const [entry] = stage.show(turn);
  stage.grow(entry, (turn = more(turn, call("c", "python", { code: "x = 1" }), asks("c"))));
  expect(urgent()).toContain("Your answer is needed: Run x = 1 in your kernel?");
});

test("a conversation that is opened is not read from its beginning", () => {
  stage.show(more(turnOf("t"), ["text.delta", { text: "Old." }], call("c"), finished("c"), over()));
  expect(quiet() + urgent()).toBe("");
});
