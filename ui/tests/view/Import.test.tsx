import { render } from "preact";
import { act } from "preact/test-utils";
import { beforeEach, expect, test } from "vitest";
import { place } from "../place";
import type { Desk } from "../../src/conversation/panelState";
import { OnDesk } from "../../src/conversation/panelContext";
import { Import } from "../../src/view/Import";

const answers = new Map<string, { settle: (seen: object) => void; fail: (error: Error) => void }>();

beforeEach(() => {
  const preview = (file: File) => new Promise((settle, fail) => answers.set(file.name, { settle, fail }));
  const desk = { sessions: { preview }, conversation: { query: "" } } as unknown as Desk;
  void act(() =>
    render(
      <OnDesk.Provider value={desk}>
        <Import />
      </OnDesk.Provider>,
      place,
    ),
  );
});
async function choose(name: string): Promise<void> {
  const input = place.querySelector("input");
  Object.defineProperty(input, "files", { value: [new File(["{}"], name)], configurable: true });
  await act(() => void input?.dispatchEvent(new Event("change", { bubbles: true })));
}

test("what is shown is of the file that was chosen last, whichever is read first", async () => {
  await choose("slow.json");
  await choose("bad.json");
  await choose("quick.json");
  await act(() => answers.get("quick.json")?.settle({ title: "Quick" }));
  await act(() => answers.get("slow.json")?.settle({ title: "Slow" }));
  await act(() => answers.get("bad.json")?.fail(new Error("It is broken.")));
  expect(place.querySelector("dl")?.textContent).toBe("titleQuick");
  expect(place.querySelector("[role=alert]")).toBeNull();
});
