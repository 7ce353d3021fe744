import { signal } from "@preact/signals";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { ApiError } from "../../src/transport/transport";
import type { NotebookHost } from "../../src/notebook/notebook";
import type { TurnView } from "../../src/turn/turn";
import { asks, call, finished, more } from "../turn/events";
import { hasInvisible } from "../../src/turn/invisibleCharacters";
import { Stage, turnOf } from "./stage";
import cards from "../../../tests/corpus/unseen.json";

let stage: Stage;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance", "Date", "setInterval", "clearInterval"] });
  stage = new Stage();
});
afterEach(() => {
  stage.close();
  vi.useRealTimers();
});

const asked = (about: Parameters<typeof asks>[1] = {}, id = "c"): TurnView =>
  more(turnOf("t"), call(id, "python", { code: "total = 6 * 7" }), asks(id, about));
const card = () => stage.find(".ak-approval");
const sent = () => stage.asked.filter((one) => one.path.startsWith("agent/approvals/"));

test("a card says exactly what will run and where", () => {
  stage.show(asked());
  expect(card().textContent).toContain("Run in your kernel?");
  expect(stage.find(".ak-approval .ak-source").textContent).toBe("total = 6 * 7");
});

test.each([
  ["Run once", { decision: "approve", remember: "once" }],
  ["Always in this conversation", { decision: "approve", remember: "session" }],
  ["Deny", { decision: "deny", remember: "once" }],
  ["Never in this conversation", { decision: "deny", remember: "never" }],
])("%s sends its decision with the hash of what was shown", async (name, choice) => {
  stage.show(asked());
  await stage.click(name);
  expect(sent()).toEqual([
    { method: "POST", path: "agent/approvals/appr_c", body: { ...choice, shown: "hash-of-it" } },
  ]);
});

const editable = { editable: "code", arguments: { code: "total = 6 * 7" } };
const field = () => stage.find(".ak-edit textarea") as HTMLTextAreaElement;
const write = (text: string) =>
  act(() => {
    field().value = text;
    field().dispatchEvent(new InputEvent("input", { bubbles: true }));
  });

test("code is edited before it runs, and the answer has the text", async () => {
  stage.show(asked(editable));
  await stage.click("Edit");
  expect(document.activeElement).toBe(field());
  expect(field().value).toBe("total = 6 * 7");
  await write("total = 6 * 8");
  await stage.press(field(), "a");
  expect(sent()).toEqual([]);
  await stage.click("Run once");
  expect(sent()[0]?.body).toEqual({
    decision: "approve",
    remember: "once",
    edited: "total = 6 * 8",
    shown: "hash-of-it",
  });
});

test("text that was not changed is no edit, and Escape ends an edit", async () => {
  stage.show(asked(editable));
  await stage.click("Edit");
  await write("gone");
  await stage.press(field(), "Escape");
  expect(stage.page.querySelector(".ak-edit")).toBeNull();
  await stage.click("Edit");
  await stage.press(field(), "Enter", { ctrlKey: true });
  expect(sent()[0]?.body).toEqual({ decision: "approve", remember: "once", shown: "hash-of-it" });
});

test.each(["a = 1\u202e", "a = 1\u200b", "  "])("the edited text %j is not sent", async (text) => {
  stage.show(asked(editable));
  await stage.click("Edit");
  await write(text);
  expect(stage.button("Run once").disabled).toBe(true);
  await stage.press(field(), "Enter", { ctrlKey: true });
  expect(sent()).toEqual([]);
  if (!text.trim()) return;
  await stage.click("Remove them");
  expect(field().value).toBe("a = 1");
  expect(stage.button("Run once").disabled).toBe(false);
});

test("only what may be remembered is offered", () => {
  stage.show(asked({ remember: ["never"], again: "text of strangers may have brought this call about" }));
  expect(() => stage.button("Always in this conversation")).toThrow();
  expect(card().textContent).toContain("Asked again: text of strangers");
});

test("a no takes its reason along", async () => {
  stage.show(asked());
  const reason = stage.find(".ak-reason") as HTMLInputElement;
  reason.value = " use the mean ";
  reason.dispatchEvent(new InputEvent("input", { bubbles: true }));
  await stage.press(reason, "Enter");
  expect(sent()[0]?.body).toEqual({
    decision: "deny",
    remember: "once",
    message: "use the mean",
    shown: "hash-of-it",
  });
});

test("keys count only with the focus on the card and half a second after it came", async () => {
  stage.show(asked());
  await stage.press(document.body, "a");
  await stage.press(card(), "a");
  expect(sent()).toEqual([]);
  vi.advanceTimersByTime(499);
  await stage.press(card(), "a");
  expect(sent()).toEqual([]);
  vi.advanceTimersByTime(1);
  await stage.press(card(), "a", { ctrlKey: true });
  await stage.press(card(), "a", { repeat: true });
  await stage.press(stage.find(".ak-reason"), "a");
  expect(sent()).toEqual([]);
  await stage.press(card(), "R");
  expect(sent()[0]?.body).toMatchObject({ decision: "deny", remember: "once" });
});

test("a card takes the focus from nobody", () => {
  const typing = document.createElement("textarea");
  document.body.append(typing);
  typing.focus();
  stage.show(asked());
  expect(document.activeElement).toBe(typing);
  typing.remove();
});

test("Alt+Enter goes to the first card that waits; after an answer the focus goes to the next", async () => {
  const two = more(asked(), call("d"), asks("d"));
  const [entry] = stage.show(two);
  await stage.press(stage.find(".ak-turns"), "Enter", { altKey: true });
  const [first, second] = stage.page.querySelectorAll(".ak-approval");
  expect(document.activeElement).toBe(first);
  stage.grow(
    entry,
    more(two, ["approval.resolved", { approval: "appr_c", call: "c", decision: "approve", reason: "", edited: null }]),
  );
  expect(stage.page.querySelectorAll(".ak-approval")).toHaveLength(1);
  expect(document.activeElement).toBe(second);
});

test("a decision that was made elsewhere is one line here", () => {
  const [entry] = stage.show(asked());
  const resolved = { approval: "appr_c", call: "c", decision: "deny", reason: "denied: not now", edited: null };
  stage.grow(entry, more(asked(), ["approval.resolved", resolved], finished("c", { status: "denied" })));
  expect(stage.page.querySelector(".ak-approval")).toBeNull();
  expect(stage.find(".ak-decided").textContent).toBe("Denied: not now.");
});

test("a change is rejected, as its button says", () => {
  const change = call("c", "edit_cell", { cell: "a" });
  const resolved = { approval: "appr_c", call: "c", decision: "deny", reason: "denied: not now", edited: null };
  stage.show(
    more(turnOf("t"), change, asks("c"), ["approval.resolved", resolved], finished("c", { status: "denied" })),
  );
  expect(stage.find(".ak-decided").textContent).toBe("Rejected: not now.");
});

test("a denial without a reason is said once, without a place and a time", () => {
  const [entry] = stage.show(asked());
  const resolved = { approval: "appr_c", call: "c", decision: "deny", reason: "denied", edited: null };
  stage.grow(entry, more(asked(), ["approval.resolved", resolved], finished("c", { status: "denied" })));
  expect(stage.page.querySelector(".ak-decided")).toBeNull();
  expect(stage.find(".ak-row").textContent).toMatch(/denied\s*$/);
  expect(stage.page.querySelector(".ak-place")).toBeNull();
});

test("an answer that the server refuses is said, and another can be given", async () => {
  stage.show(asked());
  stage.answer = () => {
    throw new ApiError(409, { code: "conflict", message: "This was answered already." });
  };
  await stage.click("Run once");
  await act(() => Promise.resolve());
  expect(stage.find(".ak-approval [role=alert]").textContent).toContain("This was answered already.");
  expect(stage.button("Deny").disabled).toBe(false);
});

test("a second click sends nothing more", async () => {
  stage.show(asked());
  stage.button("Run once").click();
  stage.button("Run once").click();
  await act(() => Promise.resolve());
  expect(sent()).toHaveLength(1);
});

test("how long it waits counts down", () => {
  stage.show(asked({ until: Date.now() / 1_000 + 61 }));
  expect(card().textContent).toContain("Denied automatically in 1 min 1 s");
  void act(() => void vi.advanceTimersByTime(2_000));
  expect(card().textContent).toContain("Denied automatically in 59 s");
});

test("characters that hide or turn code around are shown by their numbers", () => {
  stage.show(asked({ code: "ok = 1 \u202e# x\u200b\u{e0041}" }));
  expect(stage.find(".ak-approval .ak-source").textContent).toBe("ok = 1 U+202E# xU+200BU+E0041");
  expect(card().textContent).toContain("contains invisible characters");
});

test.each(cards)("the card of %j shows every character that the server marked", ({ code, shown }) => {
  const numbers = [...shown.matchAll(/\[(U\+[0-9A-F]{4,6})\]/g)].map((found) => found[1] ?? "");
  stage.show(asked({ code: shown, arguments: { code }, unseen: numbers }));
  expect(stage.find(".ak-approval .ak-source").textContent).toBe(shown);
  expect(card().textContent).toContain("contains invisible characters");
  expect(hasInvisible(card().textContent)).toBe(false);
});

test.each(cards)("a change with %j is shown with its characters by their numbers", ({ code }) => {
  const change = { diff: "+", before: "", after: code };
  stage.show(more(turnOf("t"), call("c"), asks("c", { name: "insert_cell", arguments: change })));
  expect(hasInvisible(code)).toBe(true);
  expect(hasInvisible(stage.find(".ak-approval .ak-diff").textContent)).toBe(false);
  expect(stage.find(".ak-approval .ak-diff").textContent).toContain("U+");
});

test("a change is shown to its last line before it is decided", () => {
  const after = Array.from({ length: 1_000 }, (_, line) => `step(${line})`).join("\n");
  stage.show(
    more(turnOf("t"), call("c"), asks("c", { name: "insert_cell", arguments: { diff: "+", before: "", after } })),
  );
  expect(stage.page.querySelectorAll(".ak-approval .ak-line-new")).toHaveLength(1_000);
  expect(card().textContent).toContain("step(999)");
  expect(card().textContent).not.toContain("more lines");
});

test("A pressed twice in a row allows one call, not the next one that the focus is handed to", async () => {
  const two = more(asked(), call("d"), asks("d"));
  const [entry] = stage.show(two);
  vi.advanceTimersByTime(5_000);
  card().focus();
  vi.advanceTimersByTime(500);
  await stage.press(document.activeElement ?? document.body, "a");
  stage.grow(
    entry,
    more(two, ["approval.resolved", { approval: "appr_c", call: "c", decision: "approve", reason: "", edited: null }]),
  );
  expect(document.activeElement).toBe(card());
  await stage.press(card(), "a");
  expect(sent().map((one) => one.path)).toEqual(["agent/approvals/appr_c"]);
  vi.advanceTimersByTime(500);
  await stage.press(card(), "a");
  expect(sent()).toHaveLength(2);
});

test("a card that the focus had left without a goal waits again when it is handed to it", async () => {
  const two = more(asked(), call("d"), asks("d"));
  const [entry] = stage.show(two);
  const [first, second] = stage.page.querySelectorAll<HTMLElement>(".ak-approval");
  second?.focus();
  second?.blur();
  vi.advanceTimersByTime(5_000);
  first?.focus();
  vi.advanceTimersByTime(500);
  await stage.press(card(), "a");
  stage.grow(
    entry,
    more(two, ["approval.resolved", { approval: "appr_c", call: "c", decision: "approve", reason: "", edited: null }]),
  );
  expect(document.activeElement).toBe(second);
  await stage.press(card(), "a");
  expect(sent()).toHaveLength(1);
});

test.each(["constructor", "__proto__", "toString"])("a place or a source called %s is a word like others", (word) => {
  stage.show(asked({ target: word, source: word }));
  expect(card().textContent).toContain("Let the agent do this?");
  expect(card().textContent).toContain(`From ${word}.`);
});

test("the conversation that got the focus of the last card hands it to the next one, unless it went elsewhere", async () => {
  const decided = (turn: TurnView, id: string) => more(turn, finished(id, { name: "python" }));
  const [entry] = stage.show(asked());
  card().focus();
  stage.grow(entry, decided(asked(), "c"));
  expect(document.activeElement).toBe(stage.find(".ak-turns"));
  const second = more(decided(asked(), "c"), call("d", "python", { code: "1" }), asks("d", {}));
  stage.grow(entry, second);
  expect(document.activeElement).toBe(card());
  stage.grow(entry, decided(second, "d"));
  stage.find(".ak-turns").blur();
  stage.find(".ak-turns").focus();
  stage.grow(entry, more(decided(second, "d"), call("e", "python", { code: "2" }), asks("e", {})));
  expect(document.activeElement).toBe(stage.find(".ak-turns"));
  await Promise.resolve();
});

const EDIT = { name: "edit_cell", editable: "after", arguments: { cell: "a", before: "x", after: "y", diff: "+" } };

test("a change of a cell that has changed since is not accepted; the agent is asked to propose again", async () => {
  const version = signal(0);
  let obstacle = "";
  const changes = { version, obstacle: () => obstacle, standing: () => "open", place: () => 0 };
  stage.close();
  stage = new Stage({ changes, bound: signal(null) } as unknown as NotebookHost);
  stage.show(more(turnOf("t"), call("c", "edit_cell"), asks("c", EDIT)));
  expect(card().textContent).not.toContain("has changed since");
  void act(() => {
    obstacle = "changed";
    version.value += 1;
  });
  expect(card().textContent).toContain("The cell has changed since this change was proposed");
  expect([...card().querySelectorAll("button")].map((one) => one.textContent)).toEqual(["Propose again", "Reject"]);
  vi.advanceTimersByTime(1_000);
  await stage.press(card(), "a");
  expect(sent()).toEqual([]);
  await stage.click("Propose again");
  expect(sent().map(({ body }) => body)).toEqual([
    {
      decision: "deny",
      remember: "once",
      shown: "hash-of-it",
      message: "The cell has changed since. Read it again, and propose the change for its new text.",
    },
  ]);
});

test("an opened change shows no names and texts that are for the model", async () => {
  const turn = more(turnOf("t"), call("c", "edit_cell", { cell: "cell-1", find: "x", replace: "y" }), asks("c", EDIT), [
    "call.claimed",
    { call: "c", client: "page:265815bd8443b74e7818e25c0a8cbde2", where: "client", state: "offered" },
  ]);
  stage.show(turn);
  await act(() => stage.find(".ak-row").click());
  const text = stage.find(".ak-call").textContent;
  expect(text).not.toMatch(/cell =|page:|find =/);
});
