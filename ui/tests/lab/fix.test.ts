import type { CodeCell } from "@jupyterlab/cells";
import type { NotebookPanel } from "@jupyterlab/notebook";
import { expect, test, vi } from "vitest";
import { fixInKernel } from "../../src/lab/fix";
import { TURN_MIME } from "../../src/lab/missedOutputs";

vi.mock("@jupyterlab/notebook", () => ({}));

const cell = {
  model: { id: "a", executionCount: 3, sharedModel: { getSource: () => "1 / 0" } },
} as unknown as CodeCell;

/** A notebook whose kernel runs the command, shows the record of a turn if `turn` is not empty, and replies. */
function panelOf(reply: object, turn = "t1", language = "python") {
  const future = { onIOPub: vi.fn<(message: object) => void>(), done: Promise.resolve({ content: reply }) };
  const requestExecute = vi.fn<(request: { code: string }) => typeof future>(() => {
    queueMicrotask(() => future.onIOPub({ content: { data: turn ? { [TURN_MIME]: { turn } } : {} } }));
    return future;
  });
  const panel = {
    sessionContext: { session: { kernel: { requestExecute } } },
    content: { model: { defaultKernelLanguage: language }, widgets: [cell] },
    context: { localPath: "b.ipynb" },
  };
  return { requestExecute, panel: panel as unknown as NotebookPanel };
}

test("the cell that ran in a draft becomes an edit of the failed cell", async () => {
  const { panel, requestExecute } = panelOf({ status: "ok", payload: [{ source: "set_next_input", text: "1 / 1" }] });
  const fix = await fixInKernel(panel, cell, "and\nbriefly");
  expect(fix?.change).toMatchObject({ cell: "a", before: "1 / 0", after: "1 / 1", turn: "t1", notebook: "b.ipynb" });
  expect(requestExecute.mock.calls[0]?.[0].code).toBe("%agent fix In[3] and briefly");
});

test("nothing is proposed where no candidate ran, or where the turn failed", async () => {
  const none = await fixInKernel(panelOf({ status: "ok", payload: [] }).panel, cell, "");
  expect([none?.change, none?.message]).toEqual([null, expect.stringContaining("No corrected cell ran")]);
  const failed = await fixInKernel(panelOf({ status: "error", evalue: "the turn was stopped." }).panel, cell, "");
  expect(failed).toEqual({ change: null, message: "the turn was stopped." });
});

test("a kernel without the command, or one that does not know the failure, is left to the caller", async () => {
  expect(await fixInKernel(panelOf({ status: "error", evalue: "no magic" }, "").panel, cell, "")).toBeNull();
  const { panel, requestExecute } = panelOf({ status: "ok" }, "", "R");
  expect(await fixInKernel(panel, cell, "")).toBeNull();
  expect(requestExecute).not.toHaveBeenCalled();
});
