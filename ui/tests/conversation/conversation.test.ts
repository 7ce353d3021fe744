import { beforeEach, describe, expect, test, vi } from "vitest";
import type { Entry } from "../../src/conversation/entry";
import { Conversation } from "../../src/conversation/conversation";
import { Desk } from "../../src/conversation/panelState";
import { REGRET_MS, Sessions } from "../../src/conversation/sessions";
import { WidgetNotebook } from "../../src/widget/notebook";
import type { TurnEvent } from "../../src/wire/events";
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

/** Events of an answer that has not ended. */
const said = (turn: string, texts: readonly string[]): TurnEvent[] =>
  texts.map((text, at) => ({
    seq: at + 1,
    turn,
    session: "s1",
    round: 1,
    time: 1,
    type: "text.delta",
    data: { text },
  }));

const ended = (turn: string): TurnEvent[] => [
  {
    ...{ seq: 1, turn, session: "s1", round: 0, time: 2, type: "turn.finished" },
    data: { state: "interrupted", reason: "", rounds: 0, usage: {}, error: null, finish: "", stopped: "" },
  },
];

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
    const waiting = conversation.running.value[1] as Entry;
    await conversation.takeBack(waiting);
    expect(server.asked("POST", `turns/${waiting.id}/cancel`)).toBe(1);
  });

  test("sends a message when the server knows the tools of its notebook", async () => {
    const order: string[] = [];
    class Serving extends Replayed {
      async servesKernel(kernel: string): Promise<void> {
        await Promise.resolve();
        order.push(`serves ${kernel}`);
      }

      override async request<Answer>(method: string, path: string, body?: unknown): Promise<Answer> {
        if (method === "POST") order.push(path);
        return await super.request<Answer>(method, path, body);
      }
    }
    const notebook = new WidgetNotebook("k1", "rain.ipynb");
    const conversation = new Conversation(new Serving(), notebook);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    await conversation.send({ prompt: "add a cell" });
    expect(order).toEqual(["serves k1", "turns"]);
  });

  test("stops one turn, and takes what waits behind it out of the queue first", async () => {
    const { server, conversation } = opened();
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    for (const prompt of ["one", "two", "three"]) await conversation.send({ prompt });
    server.waiting.shift(); // it runs
    server.tell({ type: "turn.opened", turn: "t9", session: "s1", kernel: "k1", cell: "c1" });
    const order: string[] = [];
    const request = server.request.bind(server);
    server.request = (method, path, body) => {
      if (path.endsWith("/cancel")) order.push(path);
      return request(method, path, body);
    };
    await conversation.stop();
    expect(order).toEqual(["sent-3", "sent-2", "sent-1"].map((turn) => `turns/${turn}/cancel`));
    expect(conversation.running.value.map((entry) => entry.id)).toEqual(["sent-1", "t9"]);
    expect(conversation.outgoing.unsent.value.map((entry) => entry.prompt)).toEqual(["three", "two"]);
  });

  test("gives back a message that was in the queue of a server that was killed", async () => {
    const { server, conversation } = opened();
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    await conversation.send({ prompt: "one" });
    server.connection.value = "offline";
    server.waiting = [];
    server.connection.value = "online";
    await server.settled();
    expect(conversation.entries.value.map((entry) => entry.prompt)).toEqual(["add them"]);
    expect(conversation.outgoing.unsent.value.map((entry) => entry.prompt)).toEqual(["one"]);
  });

  test("keeps the text of an answer that the server lost when it was killed", async () => {
    const { server, conversation } = opened();
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    await conversation.send({ prompt: "one" });
    const id = conversation.running.value[0]?.id ?? "";
    server.play(id, said(id, ["Once upon ", "a time"]));
    server.connection.value = "offline";
    server.waiting = [];
    server.turns.push({ ...server.stored(id, "one"), state: "interrupted", events: ended(id) });
    server.connection.value = "online";
    await server.settled();
    const view = conversation.entries.value.at(-1)?.view.value;
    expect(view?.state).toBe("interrupted");
    expect(view?.unsaved).toBe(true);
    expect(view?.blocks).toMatchObject([{ kind: "text", text: "Once upon a time", done: true }]);
  });

  test("shows messages that wait when it is opened", async () => {
    const { server, conversation } = opened();
    server.waiting = [{ ...server.stored("t2", "and then"), state: "open", running: true, events: [] }];
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    expect(conversation.running.value.map((entry) => entry.prompt)).toEqual(["and then"]);
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
    expect(conversation.message.value).toContain("deleted");
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

  test("says why a turn could not be stopped", async () => {
    const { server, conversation } = opened();
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    await conversation.send({ prompt: "one" });
    server.refuses = true;
    await conversation.stop();
    expect(conversation.failure.value?.message).toContain("does not answer");
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

describe("what happened meanwhile", () => {
  test("leaves nothing of a private session in the browser", async () => {
    const { server, conversation } = opened();
    server.session = { ...server.session, private: true };
    const desk = new Desk(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    await conversation.send({ prompt: "one" });
    server.session = { ...server.session, id: "s2", private: false };
    await conversation.open("s2");
    desk.close();
    const kept = localStorage.getItem("agent-kernel:seen");
    expect(kept).toContain("s2");
    expect(kept).not.toContain("s1");
  });

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
    expect(conversation.message.value).toContain("are restored");
  });
});

describe("the model", () => {
  test("of a conversation without a notebook is that of its session", async () => {
    const { server, conversation } = opened();
    const { engine } = new Desk(server, conversation);
    await conversation.bind("", "");
    await conversation.open("s1");
    await server.settled();
    expect(engine.current.value?.model).toBe("scripted");
    server.model = { ...server.model, model: "other" };
    const release = server.hold("GET models?session=s2");
    await conversation.open("s2");
    await server.settled();
    expect(engine.current.value).toBeNull();
    await release();
    expect(engine.current.value?.model).toBe("other");
    await conversation.open("s2");
    expect(["s1", "s2"].map((id) => server.asked("GET", `models?session=${id}`))).toEqual([1, 1]);
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
