import { signal } from "@preact/signals";
import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { place } from "../place";
import { PanelContext, type PanelParts } from "../../src/conversation/panelContext";
import { CopyAsCell } from "../../src/media/Media";
import { WidgetNotebook } from "../../src/widget/notebook";

const CODE = "df.plot()";
const COPIED = "There is no notebook here, so the code was copied.";

let said: string[];
const clipboard = { writeText: vi.fn(() => Promise.resolve()) };

beforeEach(() => {
  said = [];
  clipboard.writeText.mockClear();
  vi.stubGlobal("navigator", { clipboard });
});
afterEach(() => {
  vi.unstubAllGlobals();
});

async function press(notebook: object | null): Promise<void> {
  const parts = { host: { notebook } } as unknown as PanelParts;
  void act(() =>
    render(
      <PanelContext.Provider value={parts}>
        <CopyAsCell code={CODE} say={(text) => said.push(text)} />
      </PanelContext.Provider>,
      place,
    ),
  );
  place.querySelector("button")?.click();
  await vi.waitFor(() => expect(said).toHaveLength(1));
}

test("the code becomes a cell below the active one, which is brought into view", async () => {
  const insert = vi.fn(() => Promise.resolve("cell-1"));
  const reveal = vi.fn();
  await press({ bound: signal({ path: "rain.ipynb" }), changes: {}, insert, reveal });
  expect(insert).toHaveBeenCalledWith(CODE, "below");
  expect(reveal).toHaveBeenCalledWith("cell-1");
  expect(said).toEqual(["Inserted"]);
  expect(clipboard.writeText).not.toHaveBeenCalled();
});

test.each([
  ["there is no notebook in reach", null],
  ["none is open", { bound: signal(null), changes: {} }],
  ["the page does not let the panel change its cells", new WidgetNotebook("k", "rain.ipynb")],
])("the code is copied where %s, and that is said", async (_, notebook) => {
  await press(notebook);
  expect(clipboard.writeText).toHaveBeenCalledWith(CODE);
  expect(said).toEqual([COPIED]);
});

test("why a cell could not be added is said", async () => {
  const insert = () => Promise.reject(new Error("The notebook has no active cell."));
  await press({ bound: signal({ path: "rain.ipynb" }), changes: {}, insert });
  expect(said).toEqual(["The notebook has no active cell."]);
});
