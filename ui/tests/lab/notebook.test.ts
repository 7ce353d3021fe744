import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { Cell } from "@jupyterlab/cells";
import type { INotebookTracker, Notebook } from "@jupyterlab/notebook";
import { signal } from "@preact/signals";
import { describe, expect, it, vi } from "vitest";
import { cellOfLastError } from "../../src/lab/prompts";
import { LabNotebook } from "../../src/lab/notebook";

vi.mock("@jupyterlab/notebook", () => ({ NotebookActions: {} }));
vi.mock("../../src/lab/changes", () => ({ LabChanges: vi.fn(), countChanges: () => () => undefined }));
vi.mock("@lumino/widgets", () => ({}));

/** One of Lab's signals, which counts who hears it. */
class Heard {
  readonly slots = new Set<() => void>();
  connect(slot: () => void): void {
    this.slots.add(slot);
  }
  disconnect(slot: () => void): void {
    this.slots.delete(slot);
  }
}

function panelOf(path: string) {
  const changed = [new Heard(), new Heard(), new Heard()] as const;
  const [kernelChanged, statusChanged, pathChanged] = changed;
  return {
    changed,
    content: { widgets: [], modelContentChanged: new Heard() },
    context: { localPath: path, pathChanged },
    sessionContext: { session: null, kernelChanged, statusChanged },
  };
}

describe("the notebook in front", () => {
  it("is heard as long as it is in front, and once however often it comes back", () => {
    const [first, second] = [panelOf("a.ipynb"), panelOf("b.ipynb")];
    const tracker = {
      currentWidget: first,
      currentChanged: new Heard(),
      activeCellChanged: new Heard(),
      selectionChanged: new Heard(),
      widgetAdded: new Heard(),
      forEach: () => undefined,
    };
    const notebook = new LabNotebook({} as unknown as JupyterFrontEnd, tracker as unknown as INotebookTracker, signal);
    const turnTo = (panel: typeof first) => {
      tracker.currentWidget = panel;
      for (const slot of tracker.currentChanged.slots) slot();
    };
    for (const panel of [second, first, second]) turnTo(panel);
    expect(notebook.bound.value?.path).toBe("b.ipynb");
    expect(first.changed.map(({ slots }) => slots.size)).toEqual([0, 0, 0]);
    expect(second.changed.map(({ slots }) => slots.size)).toEqual([1, 1, 1]);
  });
});

describe("the last error", () => {
  const cell = (count: number | null, type = "error", ename = "ValueError", source = "1/0") => {
    const output = { type, toJSON: () => ({ output_type: type, ename }) };
    const outputs = { length: 1, get: () => output };
    return { model: { type: "code", executionCount: count, outputs, sharedModel: { getSource: () => source } } };
  };

  it("is no stop, and none of a cell that talks to the agent", () => {
    const stopped = cell(9, "error", "KeyboardInterrupt");
    const asks = cell(8, "error", "ValueError", "%%agent\nhow much?");
    const widgets = [cell(3), asks, stopped] as unknown as Cell[];
    expect(cellOfLastError({ widgets } as unknown as Notebook)).toBe(widgets[0]);
  });

  it("is that of the cell that ran last, not of the last in the notebook", () => {
    const widgets = [cell(1), cell(7), cell(3), cell(9, "stream"), cell(null)] as unknown as Cell[];
    expect(cellOfLastError({ widgets } as unknown as Notebook)).toBe(widgets[1]);
    expect(cellOfLastError({ widgets: [] as Cell[] } as unknown as Notebook)).toBeNull();
  });
});
