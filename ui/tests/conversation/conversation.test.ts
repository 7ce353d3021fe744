import { signal } from "@preact/signals";
import { beforeEach, describe, expect, test } from "vitest";
import { Composing } from "../../src/conversation/composing";
import { Conversation } from "../../src/conversation/conversation";
import { Desk } from "../../src/conversation/desk";
import { REGRET_MS, Sessions } from "../../src/conversation/sessions";
import { vi } from "vitest";
import { recorded, Replayed } from "./replayed";

const OFFER = {
  title: "Tiny",
  licence: "apache-2.0",
  publisher: "P",
  source: "hub",
  download_bytes: 100,
  disk_bytes: 200,
};
const KERNEL = { kernel: "k1", path: "rain.ipynb" };

function opened(server = new Replayed()): { server: Replayed; conversation: Conversation } {
  return { server, conversation: new Conversation(server, null) };
}

beforeEach(() => {
  sessionStorage.clear();
  localStorage.clear();
  vi.stubGlobal("requestAnimationFrame", (run: FrameRequestCallback) => {
    run(0);
    return 0;
  });
});

describe("a conversation", () => {
  test("shows the turns of the session that its notebook has", async () => {
    const { conversation } = opened();
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    expect(conversation.session.value?.title).toBe("Rain");
    expect(conversation.entries.value.map((entry) => entry.prompt)).toEqual(["add them"]);
    expect(conversation.entries.value[0]?.view.value.blocks.map((block) => block.kind)).toEqual(["call", "text"]);
  });

  test("shows a turn that another window began, and learns what was asked there", async () => {
    const { server, conversation } = opened();
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    server.turns.push({ ...server.stored("t2", "from elsewhere"), running: true, events: [] });
    server.tell({ type: "turn.opened", turn: "t2", session: "s1", kernel: "k1", cell: "" });
    server.play("t2", recorded);
    await server.settled();
    expect(conversation.entries.value.map((entry) => entry.prompt)).toEqual(["add them", "from elsewhere"]);
    expect(conversation.entries.value[1]?.view.value.state).toBe("committed");
  });

  test("keeps what it shows as it is when it looks again, and drops what is gone", async () => {
    const { server, conversation } = opened();
    server.turns.push(server.stored("t2", "and again"));
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    const first = conversation.entries.value[0];
    server.turns.pop();
    server.tell({ type: "session.changed", session: "s1", what: "branch" });
    await server.settled();
    expect(conversation.entries.value).toHaveLength(1);
    expect(conversation.entries.value[0]).toBe(first);
  });

  test("sends a message that waits behind the one that runs, and takes it back", async () => {
    const { server, conversation } = opened();
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    expect(await conversation.send({ prompt: "one" })).toBe(true);
    expect(await conversation.send({ prompt: "two" })).toBe(true);
    expect(conversation.running.value.map((entry) => entry.prompt)).toEqual(["one", "two"]);
    const waiting = conversation.running.value[1]?.id ?? "";
    await conversation.cancel(waiting);
    expect(server.asked("POST", `turns/${waiting}/cancel`)).toBe(1);
  });

  test("looks again when the server is back, without losing what runs", async () => {
    const { server, conversation } = opened();
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    await conversation.send({ prompt: "one" });
    const running = conversation.running.value[0];
    server.connection.value = "offline";
    server.turns.push(server.stored("t9", "answered meanwhile"));
    server.connection.value = "online";
    await server.settled();
    expect(conversation.entries.value.map((entry) => entry.prompt)).toEqual(["add them", "answered meanwhile", "one"]);
    expect(conversation.entries.value.at(-1)?.view).toBe(running?.view);
  });

  test("goes on with the notebook's session when another one was put in its place", async () => {
    const { server, conversation } = opened();
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    server.session = { ...server.session, id: "s2", title: "Snow" };
    server.tell({ type: "binding.changed", kernel: "k1", session: "s2" });
    await server.settled();
    expect(conversation.session.value?.title).toBe("Snow");
  });

  test("says that it was deleted elsewhere and shows none", async () => {
    const { server, conversation } = opened();
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    server.bound = false;
    server.tell({ type: "session.changed", session: "s1", what: "deleted" });
    await server.settled();
    expect(conversation.session.value).toBeNull();
    expect(conversation.entries.value).toEqual([]);
    expect(conversation.said.value).toContain("deleted");
  });

  test("does not show an answer that comes after the notebook in front has changed", async () => {
    const { server, conversation } = opened();
    const late = conversation.bind(KERNEL.kernel, KERNEL.path);
    server.bound = false;
    await conversation.bind("k2", "other.ipynb");
    await late;
    expect(conversation.place.value.kernel).toBe("k2");
    expect(conversation.session.value).toBeNull();
  });

  test("leaves the notebook in front alone when what was sent from another one is answered", async () => {
    const { server, conversation } = opened();
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    const release = server.hold("POST turns");
    const sent = conversation.send({ prompt: "one" });
    server.bound = false;
    await conversation.bind("k2", "other.ipynb");
    await release();
    expect(await sent).toBe(true);
    expect(conversation.entries.value).toEqual([]);
    expect(conversation.session.value).toBeNull();
    expect(conversation.asked.value).toBe("");
  });

  test("gives the session made for one notebook to no other", async () => {
    const { server, conversation } = opened();
    server.bound = false;
    await conversation.bind("", "quiet.ipynb");
    const release = server.hold("POST sessions");
    const sent = conversation.send({ prompt: "hello" });
    await conversation.bind("k2", "other.ipynb");
    await release();
    await sent;
    expect(conversation.session.value).toBeNull();
    expect(conversation.entries.value).toEqual([]);
  });

  test("shows the session that was asked for last, whichever answer comes last", async () => {
    const { server, conversation } = opened();
    const release = server.hold("GET sessions/slow");
    const slow = conversation.open("slow");
    await conversation.open("s2");
    await release();
    await slow;
    expect(conversation.session.value?.id).toBe("s2");
    expect(conversation.loading.value).toBe(false);
  });

  test("puts older turns into the session they were asked for, and into no other", async () => {
    const { server, conversation } = opened();
    server.olderTurns = [server.stored("t0", "long ago")];
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    const release = server.hold("GET sessions/s1/turns?limit=20&before=");
    const late = conversation.loadOlder();
    server.olderTurns = [];
    await conversation.open("s2");
    await release();
    await late;
    expect(conversation.entries.value.map(({ prompt }) => prompt)).toEqual(["add them"]);
  });

  test("makes the session of a notebook without a kernel before its first turn", async () => {
    const { server, conversation } = opened();
    server.bound = false;
    await conversation.bind("", "quiet.ipynb");
    await conversation.send({ prompt: "hello" });
    expect(server.asked("POST", "sessions?path=quiet.ipynb")).toBe(1);
    expect(server.bodies.at(-1)).toMatchObject({ session: "s1", prompt: "hello" });
  });
});

describe("a message that is written", () => {
  test("is there again after a reload, for its own session only", async () => {
    const { server, conversation } = opened();
    const composing = new Composing(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    composing.text.value = "half a thou";
    composing.close();
    const again = opened(server).conversation;
    const after = new Composing(server, again);
    await again.bind(KERNEL.kernel, KERNEL.path);
    expect(after.text.value).toBe("half a thou");
    server.bound = false;
    await again.bind("k2", "other.ipynb");
    expect(after.text.value).toBe("");
  });

  test("goes with the notebook when its session begins, or is deleted in another window", async () => {
    const { server, conversation } = opened();
    const composing = new Composing(server, conversation);
    server.bound = false;
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    composing.text.value = "typed before";
    server.bound = true;
    await conversation.rebind();
    expect(composing.text.value).toBe("typed before");
    server.bound = false;
    server.tell({ type: "session.changed", session: "s1", what: "deleted" });
    await server.settled();
    expect(composing.text.value).toBe("typed before");
  });

  test("comes back with what went along when the server did not take it", async () => {
    const { server, conversation } = opened();
    const composing = new Composing(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    composing.text.value = "look at this";
    composing.attachments.variable("df", "df: DataFrame");
    server.refuses = true;
    expect(await composing.send()).toBe(false);
    expect(composing.text.value).toBe("look at this");
    expect(composing.attachments.all.value.map((one) => one.name)).toEqual(["df"]);
    expect(conversation.failure.value?.status).toBe(0);
    server.refuses = false;
    expect(await composing.send()).toBe(true);
    expect(composing.text.value).toBe("");
    expect(server.bodies.at(-1)).toMatchObject({ context: [{ title: "@df", text: "df: DataFrame" }] });
  });

  test("tells the model of cells within bounds, and of none that was taken off", async () => {
    const cell = { id: "c1", index: 3, type: "code" as const, source: "x".repeat(20_000), output: "" };
    const server = new Replayed();
    const conversation = new Conversation(server, {
      bound: signal(null),
      activeCell: signal(cell),
      selectedCells: signal([cell]),
      insert: () => Promise.resolve(""),
      reveal: () => undefined,
      focus: () => undefined,
      startKernel: () => Promise.resolve(),
    });
    const composing = new Composing(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    await composing.send("explain");
    const { context } = server.bodies.at(-1) as { context: { title: string; text: string }[] };
    expect(context[0]?.title).toBe("cell 3");
    expect(context[0]?.text).toContain("Active cell: code, id c1");
    expect(context[0]?.text.length).toBeLessThan(9_000);
    composing.leaveOut("cell");
    await composing.send("explain");
    expect(server.bodies.at(-1)).toMatchObject({ context: [] });
  });

  test("is not sent when it is a slip of a command; a command that has nothing to do says so", async () => {
    const { server, conversation } = opened();
    const desk = new Desk(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    desk.composing.text.value = "/exprt";
    await desk.submit();
    expect(conversation.said.value).toContain("/exprt");
    expect(desk.composing.text.value).toBe("/exprt");
    desk.composing.text.value = "/stop";
    await desk.submit();
    expect(conversation.said.value).toContain("nothing");
    expect(server.bodies).toEqual([]);
    desk.composing.text.value = "/home/me/data.csv has gaps";
    await desk.submit();
    expect(server.bodies.at(-1)).toMatchObject({ prompt: "/home/me/data.csv has gaps" });
  });
});

describe("what happened meanwhile", () => {
  test("is told once to who saw the session before, and to nobody else", async () => {
    const { server, conversation } = opened();
    server.meanwhile.turns.push({ turn: "t8", cell: "", state: "failed", reason: "", closed: 9, prompt: "overnight" });
    const first = new Desk(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    await server.settled();
    expect(first.away.news.value).toBeNull();
    first.close();
    const again = opened(server).conversation;
    const second = new Desk(server, again);
    await again.bind(KERNEL.kernel, KERNEL.path);
    await server.settled();
    expect(second.away.news.value?.turns.map(({ prompt }) => prompt)).toEqual(["overnight"]);
  });

  test("offers to make lost variables again, and runs nothing before the person has said yes", async () => {
    const { server, conversation } = opened();
    const desk = new Desk(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    await desk.askToRebuild();
    expect(desk.asking.value?.text).toContain("2 pieces of code run again");
    expect(server.rebuilt).toEqual([{ dry_run: true }]);
    await desk.asking.value?.run();
    expect(server.rebuilt).toEqual([{ dry_run: true }, { dry_run: false }]);
    expect(conversation.said.value).toContain("there again");
  });
});

describe("a model that is not here", () => {
  test("is downloaded when the person asks for it, and says how far it is and why it failed", async () => {
    const { server, conversation } = opened();
    server.offered = [{ ...OFFER, name: "scripted", state: "missing" }];
    const { engine } = new Desk(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    await server.settled();
    expect(engine.missing.value?.title).toBe("Tiny");
    const seen: (number | null)[] = [];
    engine.pulling.subscribe((pulling) => pulling && seen.push(pulling.fraction));
    server.pull = [
      { stage: "download", done: 50, total: 100 },
      { stage: "failed", error: { code: "pull_failed", message: "The disk is full.", hint: "Make room." } },
    ];
    await engine.pull("scripted");
    expect(seen).toContain(0.5);
    expect(engine.pulling.value?.failure).toBe("The disk is full. Make room.");
    server.pull = [{ stage: "done" }];
    server.offered = [{ ...OFFER, name: "scripted", state: "ready" }];
    await engine.pull("scripted");
    expect(engine.pulling.value).toBeNull();
    expect(engine.missing.value).toBeNull();
  });
});

describe("a session that is deleted", () => {
  test("can be kept for a while, and is gone after it", async () => {
    vi.useFakeTimers();
    const { server, conversation } = opened();
    const sessions = new Sessions(server, conversation);
    await sessions.find("");
    sessions.remove("s1");
    sessions.keep("s1");
    await vi.advanceTimersByTimeAsync(REGRET_MS * 2);
    expect(server.asked("DELETE", "sessions/s1")).toBe(0);
    sessions.remove("s1");
    await vi.advanceTimersByTimeAsync(REGRET_MS * 2);
    expect(server.asked("DELETE", "sessions/s1")).toBe(1);
    expect(sessions.rows.value).toEqual([]);
    vi.useRealTimers();
  });
});
