import { signal } from "@preact/signals";
import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, test, vi } from "vitest";
import { Conversation } from "../../src/conversation/conversation";
import * as differing from "../../src/notebook/diff";
import type { Standing } from "../../src/notebook/notebook";
import type { PanelHost } from "../../src/conversation/panelContext";
import { Review } from "../../src/view/Review";
import { PanelContext } from "../../src/conversation/panelContext";
import { Replayed } from "../conversation/replayed";
import { call, finished, shown } from "../turn/events";

vi.mock("../../src/notebook/diff", async (original) => {
  const all = await original<typeof differing>();
  return { ...all, diff: vi.fn(all.diff) };
});

test("a change is compared once, however often its notebook changes meanwhile", () => {
  const change = { cell: "one", index: 2, notebook: "a.ipynb", turn: "t", before: "a", after: "a\nb" };
  const [block] = shown(call("c", "edit_cell"), finished("c", { name: "edit_cell", details: { change } })).blocks;
  if (block?.kind !== "call") throw new Error("it is a call");
  const version = signal(0);
  let standing: Standing = "open";
  const changes = { version, standing: () => standing, place: () => 2 };
  const transport = new Replayed();
  const host = { transport, notebook: { changes } } as unknown as PanelHost;
  const place = document.body.appendChild(document.createElement("div"));
  void act(() =>
    render(
      <PanelContext.Provider value={{ conversation: new Conversation(transport, null), host }}>
        <Review call={block} />
      </PanelContext.Provider>,
      place,
    ),
  );
  expect(place.querySelector("summary")?.textContent).toBe("Edited: cell 3 keep it? · 1 line added");
  vi.mocked(differing.diff).mockClear();
  const changed = () => {
    version.value += 1;
  };
  for (let typed = 0; typed < 50; typed++) void act(changed);
  standing = "touched";
  void act(changed);
  expect(place.querySelector("summary")?.textContent).toContain("you have changed the cell");
  expect(differing.diff).not.toHaveBeenCalled();
  render(null, place);
  place.remove();
});
