import { describe, expect, it, vi } from "vitest";
import type { IOutput } from "@jupyterlab/nbformat";
import type { INotebookTracker } from "@jupyterlab/notebook";
import { MissedOutputs, asks, newest, showsTurnEnd, TURN_MIME } from "../../src/lab/missedOutputs";
import type { Transport } from "../../src/transport/transport";
import type { StoredTurn } from "../../src/wire/bodyTypes";
import type { News } from "../../src/wire/socket";

const turn = (id: string, cell: string) => ({ turn: id, cell }) as StoredTurn;
const record = (id: string, state: string) =>
  [{ output_type: "display_data", data: { [TURN_MIME]: { turn: id, state } } }] as unknown as IOutput[];

describe("turns that ended with nobody there", () => {
  it("count once for each cell, the last one", () => {
    const turns = [turn("1", "a"), turn("2", ""), turn("3", "b"), turn("4", "a")];
    expect(newest(turns).map((one) => one.turn)).toEqual(["4", "3"]);
  });

  it("are wanted only by a cell that still asks what they answered", () => {
    expect(asks("%%agent --in live\nwhat is in {df}?\n", "what is in df?")).toBe(true);
    expect(asks("%%agent what is it\n", "what is it")).toBe(true);
    expect(asks("%%agent\nsomething else", "what is it")).toBe(false);
    expect(asks("> what\n> is it\n", "what\nis it")).toBe(true);
    expect(asks("what is it", "what is it", { agent_kernel: { ask: true } })).toBe(true);
    expect(asks("print('what is it')", "what is it")).toBe(false);
    expect(asks("%%agent\nwhat is it", "  ")).toBe(false);
  });

  it("are shown already where their end is", () => {
    expect(showsTurnEnd(record("t", "committed"), "t")).toBe(true);
    expect(showsTurnEnd(record("t", "open"), "t")).toBe(false);
    expect(showsTurnEnd(record("other", "committed"), "t")).toBe(false);
    expect(showsTurnEnd([], "t")).toBe(false);
  });

  it.each([
    ["cancelled", 2, 1],
    ["cancelled", 200, 0],
    ["committed", 2, 0],
  ])("are completed in their cell after their kernel restarted: %s %s s ago", async (state, ago, completed) => {
    vi.useFakeTimers();
    const setOutputs = vi.fn();
    const model = {
      id: "c",
      type: "code",
      executionState: "idle",
      outputs: { toJSON: () => [] },
      sharedModel: { getSource: () => "%%agent what", setOutputs },
    };
    let restart: (sender: unknown, status: string) => void = () => undefined;
    const panel = {
      context: { ready: Promise.resolve(), localPath: "a.ipynb", contentsModel: { last_modified: "9999-01-01" } },
      content: {
        widgets: [{ model }],
        model: { sharedModel: { transact: (change: () => void) => (change(), undefined) } },
      },
      sessionContext: { statusChanged: { connect: (slot: typeof restart) => (restart = slot) } },
    };
    const tracker = { widgetAdded: { connect: vi.fn() }, forEach: (each: (one: unknown) => void) => each(panel) };
    const ended = {
      turn: "t",
      session: "s",
      cell: "c",
      running: false,
      prompt: "what",
      state,
      closed: Date.now() / 1_000 - ago,
    };
    const request = vi.fn((_: string, path: string): Promise<unknown> => {
      if (path.startsWith("binding")) return Promise.resolve({ session: { id: "s" } });
      return Promise.resolve(path.startsWith("sessions") ? { turns: [ended] } : { outputs: record("t", "cancelled") });
    });
    new MissedOutputs(tracker as unknown as INotebookTracker, { request } as unknown as Transport);
    await vi.advanceTimersByTimeAsync(0);
    expect(setOutputs).not.toHaveBeenCalled();
    restart(null, "restarting");
    await vi.advanceTimersByTimeAsync(4_000);
    vi.useRealTimers();
    expect(setOutputs).toHaveBeenCalledTimes(completed);
  });

  /** As the panel's bundle throws them: with a class that this one does not have. */
  class OfTheOtherBundle extends Error {
    readonly status = 0;
    readonly body = { code: "offline", message: "gone" };
  }

  it("are left to the panel to tell of when the server is gone, at once and later", async () => {
    vi.useFakeTimers();
    const running = { turn: "t", session: "s", cell: "c", running: true, prompt: "what", closed: null };
    const cell = {
      model: {
        id: "c",
        type: "code",
        executionState: "idle",
        outputs: { toJSON: () => [] },
        sharedModel: { getSource: () => "%%agent what" },
      },
    };
    const panel = {
      context: { ready: Promise.resolve(), localPath: "a.ipynb" },
      content: { widgets: [cell] },
      disposed: { connect: vi.fn() },
      sessionContext: { statusChanged: { connect: vi.fn() } },
    };
    const tracker = { widgetAdded: { connect: vi.fn() }, forEach: (each: (one: unknown) => void) => each(panel) };
    let tell: (news: News) => void = () => undefined;
    const request = vi.fn((_: string, path: string): Promise<unknown> => {
      if (path.startsWith("binding")) return Promise.resolve({ session: { id: "s" } });
      if (path.startsWith("sessions")) return Promise.resolve({ turns: [running] });
      return Promise.reject(new OfTheOtherBundle());
    });
    const watch = (_: object, listener: (news: News) => void) => ((tell = listener), () => undefined);
    const transport = { request, watch } as unknown as Transport;
    new MissedOutputs(tracker as unknown as INotebookTracker, transport);
    await vi.advanceTimersByTimeAsync(0);
    tell({ type: "turn.closed", turn: "t", session: "s", kernel: "", cell: "c", state: "committed" });
    await vi.advanceTimersByTimeAsync(5_000);
    expect(request).toHaveBeenLastCalledWith("GET", "turns/t/outputs?session=s");
    request.mockImplementation(() => Promise.reject(new OfTheOtherBundle()));
    new MissedOutputs(tracker as unknown as INotebookTracker, transport);
    await vi.advanceTimersByTimeAsync(0);
    vi.useRealTimers();
    expect(request).toHaveBeenLastCalledWith("GET", "binding?path=a.ipynb"); // what nobody handles fails the run
  });
});
