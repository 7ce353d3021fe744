import { beforeEach, expect, test } from "vitest";
import type { Entry } from "../../src/conversation/entry";
import { Conversation } from "../../src/conversation/conversation";
import { Replayed } from "./replayed";

const KERNEL = { kernel: "k1", path: "rain.ipynb" };

function opened(server = new Replayed()): { server: Replayed; conversation: Conversation } {
  return { server, conversation: new Conversation(server, null) };
}

beforeEach(() => sessionStorage.clear());

test("stops one turn, and leaves what another tab queued in the queue", async () => {
  const { server, conversation } = opened();
  await conversation.bind(KERNEL.kernel, KERNEL.path);
  await conversation.send({ prompt: "one" });
  server.waiting.shift(); // it runs
  server.waiting.push({ ...server.stored("t9", "of another tab"), state: "open", running: true, events: [] });
  server.tell({ type: "turn.opened", turn: "t9", session: "s1", kernel: "k1", cell: "" });
  await conversation.send({ prompt: "two" });
  await conversation.stop();
  expect(server.asked("POST", "turns/t9/cancel")).toBe(0);
  expect(conversation.running.value.map((entry) => entry.id)).toEqual(["sent-1", "t9"]);
  expect(conversation.outgoing.unsent.value.map((entry) => entry.prompt)).toEqual(["two"]);
});

test("takes its messages out of the queue after the page was loaded again", async () => {
  const { server, conversation } = opened();
  await conversation.bind(KERNEL.kernel, KERNEL.path);
  for (const prompt of ["one", "two"]) await conversation.send({ prompt });
  conversation.close();
  const again = opened(server).conversation;
  await again.bind(KERNEL.kernel, KERNEL.path);
  await again.stop();
  expect(again.outgoing.unsent.value.map((entry) => entry.prompt)).toEqual(["two", "one"]);
});

test("a message that another tab took back returns to that tab only", async () => {
  const { server, conversation } = opened();
  await conversation.bind(KERNEL.kernel, KERNEL.path);
  for (const prompt of ["one", "two", "three"]) await conversation.send({ prompt });
  server.cancelWaiting("sent-2", "The message was taken back.");
  server.cancelWaiting("sent-3", "the kernel was restarted");
  expect(conversation.outgoing.unsent.value.map((entry) => entry.prompt)).toEqual(["three"]);
  expect(conversation.running.value.map((entry) => entry.id)).toEqual(["sent-1"]);
});

test("a message of another tab that this tab takes back returns to this tab", async () => {
  const { server, conversation } = opened();
  await conversation.bind(KERNEL.kernel, KERNEL.path);
  await conversation.send({ prompt: "one" });
  server.waiting.push({ ...server.stored("t9", "of another tab"), state: "open", running: true, events: [] });
  server.tell({ type: "turn.opened", turn: "t9", session: "s1", kernel: "k1", cell: "" });
  await server.settled();
  const other = conversation.running.value.find(({ id }) => id === "t9");
  await conversation.takeBack(other as Entry);
  expect(conversation.outgoing.unsent.value.map((entry) => entry.id)).toEqual(["t9"]);
});
