import { YNotebook } from "@jupyter/ydoc";
import type { INotebookTracker } from "@jupyterlab/notebook";
import { describe, expect, it, vi } from "vitest";
import { Claims, TOOLS } from "../../src/lab/clientCalls";
import { ApiError, type Transport } from "../../src/transport/transport";
import type { TurnEvent } from "../../src/wire/events";
import type { Facts } from "../../src/wire/schema";
import type { News } from "../../src/wire/socket";

vi.mock("@jupyterlab/notebook", () => ({ NotebookActions: {} }));

interface Sent {
  path: string;
  body: Facts;
}

/** A server that plays `answers` to claims and finishes, in order; the last again and again. */
class Server {
  readonly sent: Sent[] = [];
  served: string[] = [];
  tell: (news: News) => void = () => undefined;
  happen: (event: TurnEvent) => void = () => undefined;
  grant: Facts = {};
  finishes: (ApiError | null)[] = [null];

  request(_: string, path: string, body: Facts = {}): Promise<unknown> {
    this.sent.push({ path, body });
    if (path.startsWith("binding")) return Promise.resolve({ notebook: "b.ipynb" });
    if (body["action"] !== "finish") return Promise.resolve({ token: "t", renew_s: 15, arguments: {}, ...this.grant });
    const answer = this.finishes.length > 1 ? this.finishes.shift() : this.finishes[0];
    return answer ? Promise.reject(answer) : Promise.resolve({});
  }

  serve({ kernel }: { kernel: string }) {
    this.served.push(kernel);
    return () => (this.served = this.served.filter((other) => other !== kernel));
  }

  watch(_: unknown, listener: (news: News) => void) {
    this.tell = listener;
    return () => undefined;
  }

  follow(_turn: string, _session: string, _after: number, listener: (event: TurnEvent) => void) {
    this.happen = listener;
    return () => undefined;
  }

  offer(name: string, given: Facts = {}, approved = false): void {
    this.grant = { name, arguments: given };
    this.tell({ type: "turn.opened", turn: "turn", session: "s", kernel: "k", cell: "" });
    const envelope = { seq: 1, turn: "turn", session: "s", round: 1, time: 0 };
    const resolved = { approval: "a", call: "c 1", decision: "approve", reason: "", edited: null };
    if (approved) this.happen({ ...envelope, type: "approval.resolved", data: resolved });
    this.happen({ ...envelope, type: "call.offered", data: { call: "c 1", name, arguments: given } });
  }

  of(path: string): Facts[] {
    return this.sent.filter((one) => one.path === path).map((one) => one.body);
  }
}

const silent = { connect: () => undefined, disconnect: () => undefined };

function panel(path: string, kernel = "k") {
  const sharedModel = YNotebook.create();
  sharedModel.insertCell(0, { cell_type: "code", id: "one", source: "x" });
  return {
    isDisposed: false,
    disposed: silent,
    sessionContext: { kernelChanged: silent, session: { kernel: { id: kernel } } },
    context: {
      ready: Promise.resolve(),
      isReady: true,
      localPath: path,
      model: { readOnly: false },
      contentsModel: {},
    },
    content: { model: { sharedModel }, widgets: [], selectedCells: [], activeCell: null },
  };
}

async function page(panels: ReturnType<typeof panel>[]): Promise<{ server: Server; claims: Claims }> {
  const server = new Server();
  const tracker = { widgetAdded: silent, forEach: (look: (one: unknown) => void) => panels.forEach(look) };
  const claims = new Claims(tracker as unknown as INotebookTracker, server as unknown as Transport);
  await vi.waitFor(() => expect(server.served).toEqual(["k"]));
  return { server, claims };
}

const CLAIMS = "turns/turn/claims";
const CALL = `${CLAIMS}/c%201`;
const insert: Facts = { below: "one", type: "code", after: "y" };

describe("a page with a notebook open", () => {
  it("claims what is offered, does it, and answers once", async () => {
    const open = panel("a.ipynb");
    const { server, claims } = await page([open]);
    server.offer("insert_cell", insert);
    await vi.waitFor(() => expect(server.of(CALL)).toHaveLength(1));
    expect(server.of(CLAIMS)).toMatchObject([{ call: "c 1" }]);
    const [, made] = open.content.model.sharedModel.cells;
    expect(made?.getSource()).toBe("y");
    expect(server.of(CALL)).toMatchObject([
      { action: "finish", token: "t", status: "success", details: { cell: made?.id, index: 1, notebook: "a.ipynb" } },
    ]);
    claims.dispose();
    expect(server.served).toEqual([]);
  });

  it.each([true, false])("marks what a person has said yes to (%s) as accepted", async (yes) => {
    const open = panel("a.ipynb");
    const { server } = await page([open]);
    server.offer("insert_cell", insert, yes);
    await vi.waitFor(() => expect(open.content.model.sharedModel.cells).toHaveLength(2));
    const tag = open.content.model.sharedModel.cells[1]?.getMetadata("agent_kernel");
    expect(tag).toEqual({ turn: "turn", call: "c 1", made: true, ...(yes ? { accepted: true } : {}) });
  });

  it("answers with the reason what it will not do", async () => {
    const { server } = await page([panel("a.ipynb")]);
    server.offer("edit_cell", { cell: "one", before: "other", after: "y" });
    await vi.waitFor(() => expect(server.of(CALL)).toMatchObject([{ status: "error" }]));
    expect(server.of(CALL)[0]?.["text"]).toContain("changed meanwhile, so nothing was done");
  });

  it("does nothing with a call that another has", async () => {
    const open = panel("a.ipynb");
    const { server } = await page([open]);
    server.request = (_, path, body) => {
      server.sent.push({ path, body: body ?? {} });
      return Promise.reject(new ApiError(409, { code: "conflict", message: "Another client runs this call." }));
    };
    server.offer("insert_cell", insert);
    await new Promise((resolve) => setTimeout(resolve));
    expect(server.sent).toHaveLength(1);
    expect(open.content.model.sharedModel.cells).toHaveLength(1);
  });

  it("does not touch calls of others", async () => {
    const { server } = await page([panel("a.ipynb")]);
    server.offer("python", { code: "1" });
    await new Promise((resolve) => setTimeout(resolve));
    expect(TOOLS).not.toContain("python");
    expect(server.sent).toEqual([]);
  });

  it("says that the notebook was closed, so that nobody waits", async () => {
    const panels = [panel("a.ipynb")];
    const { server } = await page(panels);
    panels.pop();
    server.offer("insert_cell", insert);
    await vi.waitFor(() => expect(server.of(CLAIMS)).toHaveLength(1));
    expect(server.of(CLAIMS)[0]?.["declined"]).toContain("not open here");
  });

  it("answers again when the server was away, and gives up when nobody waits", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout"] });
    try {
      const open = panel("a.ipynb");
      const server = new Server();
      const tracker = { widgetAdded: silent, forEach: (look: (one: unknown) => void) => look(open) };
      new Claims(tracker as unknown as INotebookTracker, server as unknown as Transport);
      await Promise.resolve();
      await Promise.resolve();
      const away = new ApiError(0, { code: "offline", message: "away" });
      server.finishes = [away, new ApiError(404, { code: "not_found", message: "gone" })];
      server.offer("insert_cell", insert);
      await vi.advanceTimersByTimeAsync(10_000);
      expect(server.of(CALL)).toHaveLength(2);
      expect(open.content.model.sharedModel.cells).toHaveLength(2);
    } finally {
      vi.useRealTimers();
    }
  });

  it("takes, of two notebooks with one kernel, the one that the server has it down for", async () => {
    const [first, second] = [panel("a.ipynb"), panel("b.ipynb")];
    const { server } = await page([first, second]);
    server.offer("insert_cell", insert);
    await vi.waitFor(() => expect(server.of(CALL)).toHaveLength(1));
    expect(first.content.model.sharedModel.cells).toHaveLength(1);
    expect(second.content.model.sharedModel.cells).toHaveLength(2);
  });
});
