import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { place } from "../place";
import { PanelContext, type PanelParts } from "../../src/conversation/panelContext";
import { Media } from "../../src/media/Media";

beforeEach(() => {
  vi.stubGlobal("IntersectionObserver", undefined); // what is in the page counts as visible
});
afterEach(() => {
  vi.unstubAllGlobals();
});

/** Until something that fits the selector is in the page. */
async function show(mime: string, text: string, selector: string, code = ""): Promise<Element> {
  const parts = { host: { transport: {}, notebook: null } } as unknown as PanelParts;
  void act(() =>
    render(
      <PanelContext.Provider value={parts}>
        <Media medium={{ mime, data: btoa(text) }} session="s" code={code} />
      </PanelContext.Provider>,
      place,
    ),
  );
  return await vi.waitFor(() => {
    const found = place.querySelector(selector);
    if (!found) throw new Error(`nothing like ${selector} in ${place.innerHTML}`);
    return found;
  });
}

test("a formula is set, and a document of LaTeX is shown as it is", async () => {
  await show("text/latex", "$\\displaystyle \\frac{x_{1}}{2} \\left\\{y\\right\\}$", "mfrac");
  expect(place.textContent).not.toContain("$");
  const document = "\\begin{tabular}{l}\n1 \\\\\n\\end{tabular}";
  expect((await show("text/latex", document, "pre")).textContent).toBe(document);
});

test("only of a medium whose code is known the code can be copied as a cell", async () => {
  const copy = "button[aria-label='Copy as cell']";
  await show("text/plain", "x", "button[aria-label='Save as a file']");
  expect(place.querySelector(copy)).toBeNull();
  await show("text/plain", "x", copy, "df");
});

test("a table of the sandbox is a table of data, and one that is none is shown as data", async () => {
  const mime = "application/vnd.agent-kernel.table+json";
  const table = { columns: [{ name: "mm", type: "int64" }], index: [], rows: [[1]], shape: [1, 1] };
  await show(mime, JSON.stringify(table), "th[aria-sort=none]");
  await show(mime, JSON.stringify({ ...table, shape: "1" }), ".ak-json");
});
