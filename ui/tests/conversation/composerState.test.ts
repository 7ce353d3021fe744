import { signal } from "@preact/signals";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { ComposerState } from "../../src/conversation/composerState";
import { submit } from "../../src/conversation/commands";
import { Conversation } from "../../src/conversation/conversation";
import type { CellView } from "../../src/notebook/notebook";
import { Desk } from "../../src/conversation/panelState";
import { ApiError } from "../../src/transport/transport";
import { WidgetNotebook } from "../../src/widget/notebook";
import { Replayed } from "./replayed";

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

describe("a message that is written", () => {
  test("is there again after a reload, for its own session only", async () => {
    const { server, conversation } = opened();
    const composing = new ComposerState(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    composing.text.value = "half a thou";
    composing.close();
    const again = opened(server).conversation;
    const after = new ComposerState(server, again);
    await again.bind(KERNEL.kernel, KERNEL.path);
    expect(after.text.value).toBe("half a thou");
    server.bound = false;
    await again.bind("k2", "other.ipynb");
    expect(after.text.value).toBe("");
  });

  test("runs its code in a draft, as a cell does; in the sandbox where nobody runs it in the kernel", () => {
    const server = new Replayed();
    const where = (apart: boolean) =>
      new ComposerState(server, new Conversation(server, new WidgetNotebook("k1", "rain.ipynb", apart))).where.value;
    expect([where(true), where(false)]).toEqual(["sandbox", "draft"]);
  });

  test("goes with the notebook when its session begins, or is deleted in another window", async () => {
    const { server, conversation } = opened();
    const composing = new ComposerState(server, conversation);
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

  test("takes the error of a failed cell along once, until the cell fails in another way", async () => {
    const server = new Replayed();
    const failed = { id: "c1", index: 1, type: "code" as const, source: "1 / 0", output: "ZeroDivisionError" };
    const notebook = Object.assign(new WidgetNotebook("k1", "rain.ipynb"), {
      lastError: signal<CellView | null>(failed),
    });
    notebook.activeCell.value = failed;
    const conversation = new Conversation(server, notebook);
    const composing = new ComposerState(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    const sides = () => composing.sides.value.map(({ side }) => side);
    expect(sides()).toEqual(["error"]);
    server.refuses = true;
    expect(await composing.send("why?")).toBe(false);
    expect(sides()).toEqual(["error"]);
    server.refuses = false;
    expect(await composing.send("why?")).toBe(true);
    expect(sides()).toEqual(["cell"]);
    composing.takeAlong("error");
    expect(sides()).toEqual(["error"]);
    expect(await composing.send("and now?")).toBe(true);
    expect(sides()).toEqual(["cell"]);
    notebook.lastError.value = { ...failed, source: "1 / zero", output: "NameError" };
    expect(sides()).toEqual(["error"]);
    composing.leaveOut("error");
    expect(await composing.send("something else")).toBe(true);
    expect(sides()).toEqual(["cell"]);
    server.bound = false;
    await conversation.bind("k2", "other.ipynb");
    expect(sides()).toEqual(["error"]);
  });

  test("leaves out the error of a cell that the agent was asked to correct", async () => {
    const failed = { id: "c1", index: 1, type: "code" as const, source: "1 / 0", output: "ZeroDivisionError" };
    const notebook = Object.assign(new WidgetNotebook("k1", "rain.ipynb"), {
      lastError: signal<CellView | null>(failed),
    });
    const conversation = new Conversation(new Replayed(), notebook);
    const composing = new ComposerState(new Replayed(), conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    const sides = () => composing.sides.value.map(({ side }) => side);
    await conversation.corrections.ask("c2");
    expect(sides()).toEqual(["error"]);
    await conversation.corrections.ask("c1");
    expect(sides()).toEqual([]);
    notebook.lastError.value = { ...failed, output: "NameError" };
    expect(sides()).toEqual(["error"]);
  });

  test("comes back with what went along when the server did not take it", async () => {
    const { server, conversation } = opened();
    const composing = new ComposerState(server, conversation);
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
    const composing = new ComposerState(server, conversation);
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

  test("tells nothing of cells that talk to the agent, unless they are asked for by name", () => {
    const cell = (index: number, source: string) => ({
      id: `c${index}`,
      index,
      type: "code" as const,
      source,
      output: "",
    });
    const [help, asks, code] = [cell(1, "%agent help"), cell(2, "%%agent\nhow much?"), cell(3, "rain = 1")];
    const server = new Replayed();
    const notebook = {
      bound: signal(null),
      activeCell: signal(help),
      selectedCells: signal([help]),
      insert: () => Promise.resolve(""),
      reveal: () => undefined,
      focus: () => undefined,
      startKernel: () => Promise.resolve(),
    };
    const composing = new ComposerState(server, new Conversation(server, notebook));
    const labels = () => composing.sides.value.map(({ label }) => label);
    expect(labels()).toEqual([]);
    composing.takeAlong("cell");
    expect(labels()).toEqual(["cell 1"]);
    composing.leaveOut("cell");
    expect(labels()).toEqual([]);
    notebook.selectedCells.value = [help, asks, code];
    expect(labels()).toEqual(["cell 3"]);
    composing.takeAlong("cells");
    expect(labels()).toEqual(["3 selected cells"]);
  });

  test("is not sent when it is a slip of a command; a command that has nothing to do says so", async () => {
    const { server, conversation } = opened();
    const desk = new Desk(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    desk.composing.text.value = "/exprt";
    await submit(desk);
    expect(conversation.message.value).toContain("/exprt");
    expect(desk.composing.text.value).toBe("/exprt");
    desk.composing.text.value = "/stop";
    await submit(desk);
    expect(conversation.message.value).toContain("cannot be used now");
    expect(server.bodies).toEqual([]);
    desk.composing.text.value = "/home/me/data.csv has gaps";
    await submit(desk);
    expect(server.bodies.at(-1)).toMatchObject({ prompt: "/home/me/data.csv has gaps" });
  });
});

describe("a message that was sent", () => {
  const image = {
    kind: "image",
    key: "i",
    name: "dot.png",
    size: 3,
    mime: "image/png",
    data: "YWJj",
    failure: "",
  } as const;

  test("is in the composer again with what went along when it never became a turn", async () => {
    const { server, conversation } = opened();
    const composing = new ComposerState(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    composing.attachments.all.value = [image];
    composing.attachments.variable("df", "df: DataFrame");
    await composing.send("look at this");
    await composing.send("and at that");
    composing.text.value = "half a thou";
    await conversation.stop();
    expect(composing.text.value).toBe("look at this\nand at that\nhalf a thou");
    expect(composing.attachments.all.value.map((one) => one.name)).toEqual(["dot.png", "df"]);
    expect(sessionStorage.getItem("agent-kernel:draft rain.ipynb s1")).toBe(composing.text.value);
  });

  test("waits behind the one that is edited when it comes back", async () => {
    const { server, conversation } = opened();
    const composing = new ComposerState(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    await composing.send("and then");
    conversation.editing.value = conversation.entries.value[0] ?? null;
    await conversation.stop();
    expect(composing.text.value).toBe("add them");
    composing.stopEditing();
    expect(composing.text.value).toBe("and then");
  });

  test("is edited with its images and files, which come from the store, and those of the draft wait", async () => {
    const { server, conversation } = opened();
    const file = { id: "f1", name: "notes.txt", mime: "text/plain", size: 3 };
    server.turns[0] = {
      ...server.stored("t1", "add them"),
      media: [{ mime: "image/png", hash: "h1", size: 3 }],
      inputs: [file],
    };
    const composing = new ComposerState(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    composing.attachments.variable("df", "df: DataFrame");
    conversation.editing.value = conversation.entries.value[0] ?? null;
    expect(composing.attachments.pending).toBe(true);
    expect(await composing.send("too early")).toBe(false);
    expect(composing.attachments.problem.value).toContain("still being transferred");
    await vi.waitFor(() => expect(composing.attachments.pending).toBe(false));
    expect(server.fetched).toEqual(["sessions/s1/blobs/h1"]);
    expect(composing.attachments.all.value.map((one) => one.name)).toEqual(["image", "notes.txt"]);
    await composing.send("add them all");
    const media = [{ mime: "image/png", data: btoa("of the store") }];
    expect(server.bodies.at(-1)).toMatchObject({ replaces: "t1", media, inputs: ["f1"], context: [] });
    expect(composing.attachments.all.value.map((one) => one.name)).toEqual(["df"]);
    expect(composing.attachments.problem.value).toBe("");
  });

  test("of a correction is edited as the user reads it, and sent as the model needs it", async () => {
    const { server, conversation } = opened();
    const instruction =
      "Correct the cell In[2], which failed with KeyError: 'x'. Give the whole cell as it should be. It makes total.";
    server.turns[0] = server.stored("t1", `${instruction}\nuse the mean`);
    const composing = new ComposerState(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    const [sent = null] = conversation.entries.value;
    conversation.editing.value = sent;
    expect(composing.text.value).toBe("Correct cell [2], which failed with KeyError: 'x'\nuse the mean");
    composing.text.value = "Correct cell [2], which failed with KeyError: 'x'\nuse the median";
    server.refuses = true;
    expect(await composing.send()).toBe(false);
    expect(composing.text.value).toContain("Correct cell [2], which failed with KeyError: 'x'\nuse the median");
    server.refuses = false;
    await composing.send();
    expect(server.bodies.at(-1)).toMatchObject({ replaces: "t1", prompt: `${instruction}\nuse the median` });
    conversation.editing.value = sent;
    composing.text.value = "Only say what is wrong";
    await composing.send();
    expect(server.bodies.at(-1)).toMatchObject({ replaces: "t1", prompt: "Only say what is wrong" });
  });

  test("is not held up by an empty image, which is refused with the reason", async () => {
    const { server, conversation } = opened();
    const composing = new ComposerState(server, conversation);
    await composing.attachments.take([new File([], "dot.png", { type: "image/png" })], "");
    expect(composing.attachments.problem.value).toBe("dot.png was not attached: the file is empty.");
    expect(composing.attachments.all.value).toEqual([]);
    expect(composing.attachments.pending).toBe(false);
  });

  test("that is gone is no message to edit: what was written can be sent as a new one", async () => {
    const { server, conversation } = opened();
    const composing = new ComposerState(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    conversation.editing.value = conversation.entries.value[0] ?? null;
    composing.text.value = "add them all";
    vi.spyOn(conversation, "send").mockImplementationOnce(() => {
      conversation.failure.value = new ApiError(404, { code: "turn_not_found", message: "There is no such turn." });
      return Promise.resolve(false);
    });
    expect(await composing.send()).toBe(false);
    expect([composing.text.value, conversation.editing.value]).toEqual(["add them all", null]);
    expect(conversation.message.value).toContain("as a new message");
    await composing.send();
    expect(server.bodies.at(-1)).not.toHaveProperty("replaces");
  });
});

describe("a draft", () => {
  test("is set aside while a message that was sent is edited, and is there again after it", async () => {
    const { server, conversation } = opened();
    const composing = new ComposerState(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    const [sent = null] = conversation.entries.value;
    composing.text.value = "half a thou";
    conversation.editing.value = sent;
    expect(composing.text.value).toBe("add them");
    composing.stopEditing();
    expect(composing.text.value).toBe("half a thou");
    conversation.editing.value = sent;
    composing.text.value = "add them all";
    server.refuses = true;
    expect(await composing.send()).toBe(false);
    expect(composing.text.value).toBe("add them all");
    expect(conversation.editing.value).toBe(sent);
    server.refuses = false;
    expect(await composing.send()).toBe(true);
    expect(server.bodies.at(-1)).toMatchObject({ prompt: "add them all", replaces: "t1" });
    expect(composing.text.value).toBe("half a thou");
  });

  test("stays with its notebook when that is left while a message is edited", async () => {
    const { server, conversation } = opened();
    const composing = new ComposerState(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    composing.text.value = "half a thou";
    conversation.editing.value = conversation.entries.value[0] ?? null;
    server.bound = false;
    await conversation.bind("k2", "other.ipynb");
    expect(composing.text.value).toBe("");
    server.bound = true;
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    expect(composing.text.value).toBe("half a thou");
  });

  test("goes with a notebook that gets another name", async () => {
    const { server, conversation } = opened();
    const composing = new ComposerState(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    composing.text.value = "half a thou";
    await conversation.bind(KERNEL.kernel, "snow.ipynb");
    expect(conversation.session.value?.id).toBe("s1");
    expect(composing.text.value).toBe("half a thou");
  });

  test("that the server did not take is found where it was typed, and not in the notebook in front", async () => {
    const { server, conversation } = opened();
    const composing = new ComposerState(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    composing.text.value = "look at this";
    const release = server.hold("POST turns", true);
    const sent = composing.send();
    await conversation.bind("k2", "other.ipynb");
    await release();
    expect(await sent).toBe(false);
    expect(composing.text.value).toBe("");
    expect(conversation.failure.value).toBeNull();
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    expect(composing.text.value).toBe("look at this");
  });

  test("names only files that the server has", async () => {
    const { server, conversation } = opened();
    const composing = new ComposerState(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    const file = { kind: "file", size: 1, part: 0 } as const;
    composing.attachments.all.value = [
      { ...file, key: "1", name: "lost.csv", id: "", failure: "Too large." },
      { ...file, key: "2", name: "kept.csv", id: "f1", failure: "" },
    ];
    await composing.send("read them");
    expect(server.bodies.at(-1)).toMatchObject({ inputs: ["f1"] });
    expect(conversation.entries.value.at(-1)?.context).toEqual(["kept.csv"]);
  });
});
