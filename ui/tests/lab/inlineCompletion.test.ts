import { Notification } from "@jupyterlab/apputils";
import { beforeEach, expect, test, vi } from "vitest";
import { InlineCompletion } from "../../src/lab/inlineCompletion";
import { ApiError } from "../../src/transport/transport";

vi.mock("@jupyterlab/apputils", () => ({ Notification: { info: vi.fn() } }));

function signal() {
  const slots = new Set<() => void>();
  return {
    connect: (slot: () => void) => slots.add(slot),
    disconnect: (slot: () => void) => slots.delete(slot),
    emit: () => [...slots].forEach((slot) => slot()),
    slots,
  };
}

/** The request that was sent last; the test answers it. */
interface Sent {
  path: string;
  body: unknown;
  line: (line: unknown) => void;
  end: () => void;
  fail: (error: Error) => void;
}

function setUp(status = "idle") {
  const changed = signal();
  const statusChanged = signal();
  const activeCellChanged = signal();
  const cell = (source: string) => ({
    model: { type: "code", sharedModel: { changed, getSource: vi.fn(() => source) } },
  });
  const widgets = [cell("%%agent\nhi"), cell("import pandas as pd"), cell("pd.")];
  const kernel = { status, statusChanged };
  const content = { activeCell: widgets[2], activeCellIndex: 2, activeCellChanged, widgets };
  const panel = {
    content,
    sessionContext: { session: { kernel } },
  };
  const sent: Sent[] = [];
  const provider = new InlineCompletion({ currentWidget: panel } as never);
  provider.transport = {
    lines: (path: string, body: unknown, line: (line: unknown) => void, stop: AbortSignal) =>
      new Promise<void>((end, fail) => {
        sent.push({ path, body, line, end, fail });
        stop.addEventListener("abort", () => fail(new ApiError(0, { code: "stopped", message: "Stopped." })));
      }),
  } as never;
  const ask = (text = "pd.", offset = text.length) => provider.fetch({ text, offset }, { widget: panel } as never);
  return { activeCellChanged, ask, changed, content, kernel, provider, sent, statusChanged };
}

const warn = vi.spyOn(console, "warn").mockImplementation(() => undefined);
beforeEach(() => {
  vi.mocked(Notification.info).mockClear();
  warn.mockClear();
});

test("the text around the cursor and the code above are sent, and the completion grows in place", async () => {
  const { ask, changed, provider, sent } = setUp();
  const answer = ask("s='😀'; x = )", 11);
  expect(sent[0]?.path).toBe("infill");
  expect(sent[0]?.body).toEqual({ prefix: "s='😀'; x = ", suffix: ")", context: "import pandas as pd" });
  sent[0]?.line({ text: "", silence: "" });
  sent[0]?.line({ text: "read", silence: "" });
  const item = (await answer).items[0];
  expect(item).toMatchObject({ insertText: "read", isIncomplete: true });
  const texts: string[] = [];
  const reading = (async () => {
    for await (const { response } of provider.stream(item?.token ?? "")) texts.push(response.insertText);
  })();
  sent[0]?.line({ text: "read_csv()", silence: "" });
  await Promise.resolve();
  sent[0]?.end();
  await reading;
  expect(texts.at(-1)).toBe("read_csv()");
  expect(changed.slots.size).toBe(0);
});

test("the code above keeps its beginning while the notebook grows", async () => {
  const { ask, content, sent } = setUp();
  const context = async (length: number) => {
    content.widgets[1]?.model.sharedModel.getSource.mockReturnValue("abcdefg".repeat(length).slice(0, length));
    void ask("x".repeat(sent.length + 1));
    await Promise.resolve();
    return (sent.at(-1)?.body as { context: string }).context;
  };
  const [short, longer, cut] = [await context(3_000), await context(3_900), await context(4_001)];
  expect(longer.startsWith(short)).toBe(true);
  expect(longer.slice(2_000)).toBe(cut.slice(0, -101));
});

test("the rest of a completion is shown without a request while the user types its beginning", async () => {
  const { ask, sent } = setUp();
  const answer = ask("pd.");
  sent[0]?.line({ text: "read_csv()", silence: "" });
  sent[0]?.end();
  await answer;
  expect(await ask("pd.re")).toEqual({ items: [{ insertText: "ad_csv()" }] });
  void ask("pd.x");
  expect(sent).toHaveLength(2);
});

test.each(["changed", "activeCellChanged"] as const)("%s ends the request and gives nothing", async (name) => {
  const made = setUp();
  const answer = made.ask();
  made[name].emit(); // the user types, or goes to another cell
  expect(await answer).toEqual({ items: [] });
  expect(warn).not.toHaveBeenCalled();
});

test("a kernel that begins to compute ends the request", async () => {
  const { ask, kernel, statusChanged } = setUp();
  const answer = ask();
  kernel.status = "busy";
  statusChanged.emit();
  expect(await answer).toEqual({ items: [] });
});

test.each([
  ["the kernel computes", "busy", "pd."],
  ["the cell is a prompt", "idle", "%%agent\nwhy"],
])("nothing is sent while %s", async (_, status, text) => {
  const { ask, sent } = setUp(status);
  expect(await ask(text)).toEqual({ items: [] });
  expect(sent).toEqual([]);
});

test("an error is logged once in plain words", async () => {
  const { ask, sent } = setUp();
  for (const [at, text] of ["a", "b"].entries()) {
    const answer = ask(text);
    sent[at]?.fail(new ApiError(415, { code: "http", message: "The server answered 415." }));
    expect(await answer).toEqual({ items: [] });
  }
  expect(warn.mock.calls).toEqual([["agent-kernel: the code cannot be completed. The server answered 415."]]);
});

test("that the model is not loaded is shown once, and that it is busy never", async () => {
  const { ask, sent } = setUp();
  for (const [at, silence] of ["unloaded", "unloaded", "busy"].entries()) {
    const answer = ask(silence);
    sent[at]?.line({ text: "", silence });
    sent[at]?.end();
    expect(await answer).toEqual({ items: [] });
  }
  expect(Notification.info).toHaveBeenCalledOnce();
});
