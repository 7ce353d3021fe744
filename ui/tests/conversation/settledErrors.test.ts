import { signal } from "@preact/signals";
import { beforeEach, expect, test } from "vitest";
import { ComposerState } from "../../src/conversation/composerState";
import { Conversation } from "../../src/conversation/conversation";
import type { CellView } from "../../src/notebook/notebook";
import { WidgetNotebook } from "../../src/widget/notebook";
import { Replayed } from "./replayed";

const KERNEL = { kernel: "k1", path: "rain.ipynb" };

beforeEach(() => {
  sessionStorage.clear();
  localStorage.clear();
});

test("leaves out an error that was sent or removed before the page was loaded again", async () => {
  const failed = { id: "c1", index: 1, type: "code" as const, source: "1 / 0", output: "ZeroDivisionError" };
  const loaded = async (server: Replayed, lastError: CellView) => {
    const notebook = Object.assign(new WidgetNotebook("k1", "rain.ipynb"), {
      lastError: signal<CellView | null>(lastError),
    });
    const conversation = new Conversation(server, notebook);
    const composing = new ComposerState(server, conversation);
    await conversation.bind(KERNEL.kernel, KERNEL.path);
    return { composing, sides: () => composing.sides.value.map(({ side }) => side) };
  };
  const server = new Replayed();
  const first = await loaded(server, failed);
  expect(await first.composing.send("why?")).toBe(true);
  first.composing.close();
  expect((await loaded(server, failed)).sides()).toEqual([]);
  const other = { ...failed, output: "NameError" };
  const second = await loaded(server, other);
  expect(second.sides()).toEqual(["error"]);
  second.composing.leaveOut("error");
  second.composing.close();
  expect((await loaded(server, other)).sides()).toEqual([]);
  server.session = { ...server.session, id: "s2" };
  expect((await loaded(server, other)).sides()).toEqual(["error"]);
});
