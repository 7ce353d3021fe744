import { signal } from "@preact/signals";
import { expect, test } from "vitest";
import { COMMANDS } from "../../src/conversation/commands";
import type { Desk } from "../../src/conversation/panelState";
import { call, finished, more } from "../turn/events";
import { turnOf } from "../view/stage";

async function undone(prompt: string) {
  const edited = { cell: "a", before: "1", after: "2", turn: "t" };
  const view = more(
    turnOf("t"),
    call("1", "edit_cell"),
    finished("1", { details: { change: edited } }),
    call("2", "python", { code: "x = 1" }),
    finished("2"),
    call("3", "book_a_room"),
    finished("3"),
    call("4", "read_cells"),
    finished("4"),
  );
  const said: string[] = [];
  const text = signal("");
  const result = { turn: "t", items: 3, prompt, ran: ["edit_cell", "python", "book_a_room", "read_cells"] };
  const desk = {
    conversation: { entries: signal([{ id: "t", view: signal(view) }]) },
    sessions: { undo: () => Promise.resolve(result) },
    composing: { text },
    say: (words: string) => said.push(words),
  };
  await COMMANDS.find(({ name }) => name === "undo")?.run(desk as unknown as Desk, "");
  return { said, text: text.value };
}

test("undo says in the user's words what it does not undo, and gives the message back", async () => {
  expect(await undone("How much rain?")).toEqual({
    said: [
      "The last turn was undone. Not undone: a changed cell; " +
        "code that ran in the kernel (one call), and its variables; the effects of book_a_room.",
    ],
    text: "How much rain?",
  });
});

test("the prompt of a correction, which the user has not written, is no message to send again", async () => {
  const prompt =
    "Correct the cell In[1], which failed with NameError: name 'n' is not defined. Give the whole cell as it should be.";
  expect((await undone(prompt)).text).toBe("");
});
