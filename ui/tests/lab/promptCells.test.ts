import type { CodeCell } from "@jupyterlab/cells";
import type { NotebookPanel } from "@jupyterlab/notebook";
import { expect, test, vi } from "vitest";
import { askInCell, runsPrompts, switchToAsk } from "../../src/lab/promptCells";

const { runCells } = vi.hoisted(() => ({ runCells: vi.fn(() => Promise.resolve(true)) }));
vi.mock("@jupyterlab/notebook", () => ({ NotebookActions: { runCells } }));

/** A cell with metadata and a source that can be changed. */
function cellOf(source: string, metadata: Record<string, unknown> = {}) {
  const state = { source, metadata };
  const model = {
    type: "code",
    metadata,
    getMetadata: (key: string) => state.metadata[key],
    setMetadata: (key: string, value: unknown) => (state.metadata[key] = value),
    deleteMetadata: (gone: string) => {
      state.metadata = Object.fromEntries(Object.entries(state.metadata).filter(([key]) => key !== gone));
    },
    sharedModel: { getSource: () => state.source, setSource: (text: string) => (state.source = text) },
  };
  return { state, cell: { model } as unknown as CodeCell };
}

test("a cell is switched to Ask and back, and keeps what else its metadata hold", () => {
  const { state, cell } = cellOf("plot df", { tags: ["a"], agent_kernel: { other: 1 } });
  switchToAsk(cell, true);
  expect(state.metadata).toEqual({ tags: ["a"], agent_kernel: { other: 1, ask: true } });
  switchToAsk(cell, false);
  expect(state).toEqual({ source: "plot df", metadata: { tags: ["a"], agent_kernel: { other: 1 } } });
  const bare = cellOf("x", { agent_kernel: { ask: true } });
  switchToAsk(bare.cell, false);
  expect(bare.state.metadata).toEqual({});
});

test("a prompt that begins with > becomes code without the sign", () => {
  const { state, cell } = cellOf("> df.head()\n> df.tail()");
  switchToAsk(cell, false);
  expect(state.source).toBe("df.head()\ndf.tail()");
});

test("asking in a cell runs it as a prompt", async () => {
  const { state, cell } = cellOf("plot df");
  const panel = { content: "content", sessionContext: "context" } as unknown as NotebookPanel;
  await askInCell(panel, cell);
  expect(state.metadata).toEqual({ agent_kernel: { ask: true } });
  expect(runCells).toHaveBeenCalledWith("content", [cell], "context");
});

test("only kernels of one kernelspec run prompts", () => {
  const panel = (name: string) => ({ sessionContext: { session: { kernel: { name } } } }) as unknown as NotebookPanel;
  expect([panel("agent-python"), panel("python3"), null].map(runsPrompts)).toEqual([true, false, false]);
});
