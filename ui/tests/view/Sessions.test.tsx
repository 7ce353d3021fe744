import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test } from "vitest";
import { SessionList } from "../../src/view/Sessions";
import { Desked } from "./desked";

let shell: Desked;
beforeEach(() => {
  shell = new Desked();
});
afterEach(() => shell.close());

test("who renames a conversation types its title at once", async () => {
  await shell.show(<SessionList />);
  await act(() => shell.desk.sessions.find(""));
  await shell.press("Rename");
  expect(document.activeElement?.getAttribute("aria-label")).toBe("New title of Rain");
});

const focused = () => document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent;
const frame = () => act(() => new Promise<void>((done) => requestAnimationFrame(() => done())));
const key = (name: string) =>
  act(() => {
    document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
  });

test.each(["Enter", "Escape"])(
  "after %s in the new title, which is typed over the old one, the focus is back",
  async (name) => {
    await shell.show(<SessionList />);
    await act(() => shell.desk.sessions.find(""));
    const button = [...shell.page.querySelectorAll("button")].find((one) => one.textContent === "Rename");
    button?.focus();
    await shell.press("Rename");
    const field = shell.find("input.ak-rename") as HTMLInputElement;
    expect([field.selectionStart, field.selectionEnd]).toEqual([0, field.value.length]);
    await key(name);
    await frame();
    expect(focused()).toBe("Rename");
  },
);

test("the focus stays in the row of a conversation that is deleted and kept", async () => {
  await shell.show(<SessionList />);
  await act(() => shell.desk.sessions.find(""));
  shell.find("[aria-label='Delete Rain']").focus();
  await shell.press("Delete Rain");
  expect(focused()).toBe("Keep it");
  await shell.press("Keep it");
  expect(shell.find(".ak-session").contains(document.activeElement)).toBe(true);
});

test("a copy of a conversation has a title of its own", async () => {
  await shell.show(<SessionList />);
  await act(() => shell.desk.sessions.find(""));
  await shell.press("Copy");
  expect(shell.server.asked("POST", "sessions/s1/fork?")).toBe(1);
  expect(shell.server.session.title).toBe("Rain (copy)");
});

test("the files that were attached are no conversation: they can only be deleted", async () => {
  await shell.show(<SessionList />);
  const uploads = { ...shell.server.session, id: "uploads", title: "Uploaded files", turns: 0 };
  await act(() => {
    shell.desk.sessions.rows.value = [{ session: uploads, notebooks: [], found: [] }];
  });
  const row = shell.find(".ak-session");
  expect(row.textContent).not.toContain("0 turns");
  expect([...row.querySelectorAll("button")].map((button) => button.textContent)).toEqual(["Delete"]);
});

test("a new conversation while an empty one is open is that empty one", async () => {
  const { conversation, server } = shell;
  const empty = { ...server.session, title: "", turns: 0 };
  const made = () => server.asked("POST", "sessions?");
  conversation.session.value = empty;
  await shell.desk.sessions.begin();
  expect(made()).toBe(0);
  for (const other of [
    { ...empty, title: "Rain" },
    { ...empty, turns: 1 },
    { ...empty, private: true },
    { ...empty, metadata: { "agent_kernel.instructions": "Be brief." } },
  ]) {
    conversation.session.value = other;
    const before = made();
    await shell.desk.sessions.begin().catch(() => undefined);
    expect(made()).toBe(before + 1);
  }
});
