import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Entry } from "../../src/conversation/conversation";
import * as words from "../../src/turn/labels";
import type { TurnView } from "../../src/turn/turn";
import { call, finished, more, over, type Said } from "../turn/events";
import { Stage, turnOf } from "./stage";

// Each drawing of a row asks once what it is called: that is counted.
vi.mock("../../src/turn/labels", async (original) => {
  const all = await original<typeof words>();
  return { ...all, callPhrase: vi.fn(all.callPhrase) };
});
const rows = vi.mocked(words.callPhrase);

let stage: Stage;
beforeEach(() => {
  stage = new Stage();
});
afterEach(() => {
  stage.close();
});

const runs = (count: number): Said[] =>
  Array.from({ length: count }, (_, n) => [call(`c${n}`, "python", { code: `x = ${n}` }), finished(`c${n}`)]).flat();

const NOTED = "a line\n[1 figure(s) shown]\nValueError: x";
const PICTURE = { type: "image", mime: "image/png", hash: "h", size: 1 } as const;

test.each([
  [NOTED, [PICTURE], "a line\nValueError: x"],
  ["[2 figure(s) shown]", [PICTURE], ""],
  ["[1 image(s) shown]", [PICTURE], ""],
  [NOTED, [], NOTED],
])("an opened call with the result %j has no note for the model about its images", (text, media, said) => {
  stage.show(more(turnOf("t"), call("c", "python", { code: "f()" }), finished("c", { text, media }), over()));
  void act(() => stage.find(".ak-row").click());
  expect(stage.page.querySelector(".ak-inside .ak-output")?.textContent ?? "").toContain(said);
  expect(stage.page.textContent.includes("(s) shown]")).toBe(media.length === 0);
  expect(stage.page.textContent.includes("The call printed nothing.")).toBe(!said);
});

test("what is finished is drawn once, however long the rest of the answer grows", () => {
  let turn = more(turnOf("t"), ...runs(30), ["text.delta", { text: "Well" }]);
  const [entry] = stage.show(turn);
  expect(rows).toHaveBeenCalled();
  rows.mockClear();
  for (let step = 0; step < 200; step++) {
    turn = more(turn, ["text.delta", { text: " and" }]);
    stage.grow(entry, turn);
  }
  stage.grow(entry, more(turn, over()));
  expect(stage.find(".ak-markdown").textContent).toContain("Well and and");
  expect(rows).not.toHaveBeenCalled();
  expect(stage.page.querySelectorAll(".ak-call")).toHaveLength(30);
});

test("an earlier turn is not drawn again while a later one runs", () => {
  const first = more(turnOf("a"), ...runs(3), over());
  let turn = turnOf("b");
  const [, entry] = stage.show(first, turn);
  expect(rows).toHaveBeenCalled();
  rows.mockClear();
  for (let step = 0; step < 20; step++) stage.grow(entry, (turn = more(turn, ["text.delta", { text: "x" }])));
  expect(rows).not.toHaveBeenCalled();
});

test("an open row stays open when other parts come", async () => {
  let turn = more(turnOf("t"), ...runs(1));
  const [entry] = stage.show(turn);
  stage.find(".ak-row").click();
  await Promise.resolve();
  stage.grow(entry, (turn = more(turn, ["text.delta", { text: "x" }])));
  expect(stage.find(".ak-row").getAttribute("aria-expanded")).toBe("true");
  expect(stage.find(".ak-inside").textContent).toContain("x = 0");
});

test("a correction is one row, which says when opened what failed before", async () => {
  const failed = finished("c", { status: "error", text: "Traceback\nKeyError: 'a'" });
  const corrected = [call("c-fix", "python", { code: "t['A']" }), finished("c-fix")];
  stage.show(more(turnOf("t"), call("c", "python", { code: "t['a']" }), failed, ...corrected, over()));
  expect(stage.page.querySelectorAll(".ak-call")).toHaveLength(1);
  stage.find(".ak-row").click();
  await Promise.resolve();
  expect(stage.find("summary").textContent).toBe("Corrected without the model. The error was: KeyError: 'a'");
  expect(stage.find(".ak-inside details").textContent).toContain("t['a']");
});

test("a row is one line of words: what, where, how it ended", () => {
  stage.show(more(turnOf("t"), call("c", "python", { code: "x = 1" }), finished("c", { status: "error", text: "no" })));
  const row = stage.find(".ak-row").textContent.replace(/\s+/g, " ").trim();
  expect(row).toBe("Run x = 1 in your kernel failed 0.5 s");
});

test("what a program prints comes while it runs, without its control sequences", () => {
  stage.show(
    more(turnOf("t"), call("c", "python", { code: "x" }), [
      "call.output",
      { call: "c", text: "1%\r\u001b[31m2%\u001b[0m<img src=x onerror=alert(1)>", stream: "stdout" },
    ]),
  );
  expect(stage.find(".ak-output pre").textContent).toBe("2%<img src=x onerror=alert(1)>");
  expect(stage.page.querySelector("img")).toBeNull();
});

test("a turn that waits says for what", () => {
  const [entry] = stage.show(more(turnOf("t"), ["queued", { position: 2, reason: "another turn runs" }]));
  expect(stage.find(".ak-waiting").textContent).toBe("In the queue: 2 turns before it (another turn runs)");
  stage.grow(entry, more(turnOf("t"), ["model.loading", { model: "m", stage: "loading", fraction: 0.25 }]));
  expect(stage.find(".ak-waiting").textContent).toContain("m: loading, 25 %");
  expect(stage.find("progress").getAttribute("value")).toBe("0.25");
});

test("a turn that has only a notice so far says that the model thinks", () => {
  stage.show(
    more(
      turnOf("t"),
      ["turn.started", { model: "m", local: true, where: "in process", host: "" }],
      ["state.lost", { reason: "The kernel is new: variables of earlier turns are gone." }],
    ),
  );
  expect(stage.find(".ak-waiting").textContent).toBe("Thinking");
});

test("a turn whose context did not fit says what was left out", () => {
  stage.show(more(turnOf("t"), ["context", { messages: 9, dropped: 6, shortened: 1, summary: true }], over()));
  expect(stage.find(".ak-quiet").textContent).toBe(
    "6 earlier messages did not fit and are left out; a summary replaces them; 1 long result is shortened.",
  );
});

test("a turn that failed says why, what to do, and has its next action", async () => {
  const error = { code: "engine_error", message: "The model is gone.", hint: "Start it.", details: { host: "h" } };
  stage.show(more(turnOf("t"), over({ state: "failed", reason: "x", error })));
  expect(stage.find(".ak-ended").textContent).toContain("The model is gone. Start it.");
  await stage.click("Try again");
  expect(stage.asked.find((one) => one.method === "POST")).toMatchObject({
    path: "turns",
    body: { replaces: "t", prompt: "" },
  });
});

test("what a turn cost and changed stands in its footer", () => {
  const usage = { prompt_tokens: 1203, reused_tokens: 1000, completion_tokens: 45, seconds: 70 };
  stage.show(
    more(
      turnOf("t"),
      call("c", "edit_cell"),
      finished("c", { details: { change: { do: "edit", cell: "x" } } }),
      over({ usage }),
    ),
  );
  expect(stage.find(".ak-facts").textContent).toBe(
    "1,203 tokens read (1,000 reused)\u00a0· 45 written\u00a0· 1 min 10 s\u00a0· 1 cell changed",
  );
});

test("the footer is there from the beginning, and says more when the turn ends", () => {
  const [entry] = stage.show(more(turnOf("t"), ["text.delta", { text: "x" }]));
  const footer = stage.find(".ak-footer");
  expect(stage.button("Retry").disabled).toBe(true);
  stage.grow(entry, more(turnOf("t"), ["text.delta", { text: "x" }], over()));
  expect(stage.find(".ak-footer")).toBe(footer);
  expect(stage.button("Retry").disabled).toBe(false);
});

test("Edit gives the turn to the composer", async () => {
  const [entry] = stage.show(more(turnOf("t"), over()));
  await stage.click("Edit");
  expect(stage.conversation.editing.value).toBe(entry);
});

test("Retry pressed twice asks once", async () => {
  stage.show(more(turnOf("t"), ["text.delta", { text: "Hm" }], over()));
  let answer: () => void = () => undefined;
  const retry = vi.spyOn(stage.conversation, "retry").mockImplementation(() => new Promise((done) => (answer = done)));
  await stage.click("Retry");
  await stage.click("Retry");
  expect(retry).toHaveBeenCalledOnce();
  answer();
  await stage.click("Copy");
  await stage.click("Retry");
  expect(retry).toHaveBeenCalledTimes(2);
});

test("the arrows of a version go to the branch of the one beside it", async () => {
  const version = { branch: "b2", number: 2, count: 3, replaces: "a", kept_on: "main", later: 0, changed: false };
  stage.show(more(turnOf("t"), ["turn.version", version], over()));
  stage.conversation.session.value = { id: "s" } as never;
  const versions = ["a", "t", "z"].map((turn, n) => ({ turn, branch: `b${n + 1}` }));
  stage.answer = ({ path }) => (path.includes("versions") ? { versions } : { turns: [], older: false });
  await stage.click("Previous version");
  await expect
    .poll(() => stage.asked.find((one) => one.method === "PUT"))
    .toEqual({
      method: "PUT",
      path: "sessions/s/branch",
      body: { name: "b1" },
    });
});

test("files of a turn are named as they are and have their download", () => {
  const file = { id: "f1", name: "a\u202egnp.exe", bytes: 2_000 };
  stage.show(more(turnOf("t"), call("c"), ["file.produced", { call: "c", file }], finished("c")));
  expect(stage.find(".ak-file-name").textContent).toBe("aU+202Egnp.exe");
  expect(stage.find(".ak-files").textContent).toContain("2.0 kB");
});

test("a part that can not be drawn says so, and all around it stays", () => {
  vi.spyOn(console, "error").mockImplementation(() => undefined);
  rows.mockImplementation((one) => {
    if (one.name === "hostile") throw new RangeError("too deep");
    return { kind: "run", verb: one.name, target: "" };
  });
  const turn = more(turnOf("t"), ["text.delta", { text: "First" }], call("a", "hostile"), call("b", "kind"));
  const [entry] = stage.show(turn);
  stage.grow(entry, more(turn, ["text.delta", { text: "and last" }]));
  const said = stage.find(".ak-turn").textContent;
  expect(said).toMatch(/First.*This part could not be shown\..*kind.*and last/s);
  rows.mockReset();
});

test("the details of a notice are folded below it, as text", () => {
  stage.show(
    more(
      turnOf("t"),
      [
        "notice",
        {
          level: "info",
          text: "5 of 8 programs that were tried have this result.",
          details: "3 gave another result:\n<b>7</b>",
        },
      ],
      ["notice", { level: "info", text: "All 8 programs that were tried have this result.", details: "" }],
      over(),
    ),
  );
  const details = stage.find("details.ak-notice-details") as HTMLDetailsElement;
  expect(details.open).toBe(false);
  expect(details.querySelector("summary")?.textContent).toBe("5 of 8 programs that were tried have this result.");
  expect(details.querySelector("pre")?.textContent).toBe("3 gave another result:\n<b>7</b>");
  expect(stage.find("p.ak-notice").textContent).toBe("All 8 programs that were tried have this result.");
});

const frame = {
  "text/html":
    "<table><thead><tr><th></th><th>mm</th></tr></thead><tbody><tr><th>0</th><td>1.5</td></tr></tbody></table>",
  "text/plain": "    mm\n0  1.5",
};
const bundle = { mime: "application/vnd.agent-kernel.bundle+json", data: btoa(JSON.stringify(frame)) };
const answered = (id: string, rows: string): TurnView =>
  more(
    turnOf(id),
    call("c", "python", { code: "df" }),
    finished("c", { media: [bundle] }),
    ["text.delta", { text: `The result:\n\n${rows}` }],
    over(),
  );

test("an answer whose rows are in the table above it points there, and one that has more is shown", async () => {
  stage.show(answered("same", "        mm\n    0  1.5"), answered("more", "    total 3\n        mm\n    0  1.5"));
  await vi.waitFor(() => expect(stage.find("[data-turn=more] .ak-markdown").textContent).toContain("total 3"));
  expect(stage.page.querySelector("[data-turn=more] > .ak-quiet")).toBeNull();
  expect(stage.find("[data-turn=same] > .ak-quiet").textContent).toBe("The result is the table above.");
  expect(stage.page.querySelector("[data-turn=same] .ak-markdown")).toBeNull();
});

test("an answer with values of the table above it in other rows is shown", async () => {
  stage.show(answered("values", "    0\n    1.5\n    mm"));
  await vi.waitFor(() => expect(stage.find("[data-turn=values] .ak-markdown").textContent).toContain("mm"));
});

test("files of a message are named, also when the page was loaded again and has only what the server stored", () => {
  const [entry] = stage.show(turnOf("t")) as [Entry];
  const inputs = [
    { id: "file-1", name: "rain.csv", mime: "text/csv", size: 8 },
    { id: "file-2", name: "wind.csv", mime: "text/csv", size: 8 },
  ];
  stage.conversation.entries.value = [{ ...entry, context: ["cell 2", "wind.csv"], inputs }];
  stage.grow(entry, turnOf("t"));
  const chips = [...stage.page.querySelectorAll(".ak-prompt .ak-chip")].map((chip) => chip.textContent);
  expect(chips).toEqual(["cell 3", "wind.csv", "rain.csv"]);
});
