import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { CommTransport, type CommModel } from "../../src/transport/comm";
import type { TurnEvent } from "../../src/wire/events";

type Listener = (content: unknown, buffers: readonly DataView[]) => void;

class Kernel implements CommModel {
  readonly heard: Record<string, unknown>[] = [];
  #listeners = new Set<Listener>();

  send(content: unknown): void {
    this.heard.push(content as Record<string, unknown>);
  }

  on(_: "msg:custom", listener: Listener): void {
    this.#listeners.add(listener);
  }

  off(_: "msg:custom", listener: Listener): void {
    this.#listeners.delete(listener);
  }

  says(content: object, buffers: readonly DataView[] = []): void {
    const to = this.heard[0]?.["to"];
    for (const listener of this.#listeners) listener({ to, ...content }, buffers);
  }

  /** Of the turn that was asked for last. */
  tells(content: object): void {
    this.says({ number: this.heard.findLast((one) => one["do"] === "follow")?.["number"], ...content });
  }

  get last(): Record<string, unknown> {
    return this.heard.at(-1) ?? {};
  }
}

const event = (seq: number, type = "text.delta") =>
  ({ seq, turn: "t", session: "s", round: 1, time: 0, type, data: { text: String(seq) } }) as unknown as TurnEvent;

describe("the way through the kernel", () => {
  let kernel: Kernel;
  let transport: CommTransport;

  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "setInterval", "clearInterval"] });
    kernel = new Kernel();
    transport = new CommTransport(kernel);
  });

  afterEach(() => {
    vi.useRealTimers();
  });

  it("answers each request with its own answer, in any order", async () => {
    const first = transport.request("GET", "a");
    const second = transport.request("GET", "b");
    const [one, two] = kernel.heard;
    kernel.says({ id: two?.["id"], body: { it: "b" } });
    kernel.says({ id: one?.["id"], body: { it: "a" } });
    await expect(first).resolves.toEqual({ it: "a" });
    await expect(second).resolves.toEqual({ it: "b" });
    expect(transport.connection.value).toBe("online");
  });

  it("tells errors apart as HTTP would, and a server that is gone as offline", async () => {
    const kinds = { session_not_found: 404, forbidden: 403, invalid_request: 400, server_unreachable: 0 };
    for (const [code, status] of Object.entries(kinds)) {
      const asked = transport.request("GET", "x");
      kernel.says({ id: kernel.last["id"], error: { code, message: "m", hint: "h" } });
      await expect(asked).rejects.toMatchObject({ status, body: { code, hint: "h" } });
    }
    expect(transport.connection.value).toBe("offline");
  });

  it("leaves alone what is said to another view", async () => {
    const asked = transport.request("GET", "a");
    kernel.says({ to: "another", id: kernel.last["id"], body: { it: "wrong" } });
    kernel.says({ id: kernel.last["id"], body: { it: "right" } });
    await expect(asked).resolves.toEqual({ it: "right" });
  });

  it("hands out each event once, to each who follows from where they were", () => {
    const early: number[] = [];
    const late: number[] = [];
    transport.follow("t", "s", 0, ({ seq }) => early.push(seq));
    transport.follow("t", "s", 2, ({ seq }) => late.push(seq));
    expect(kernel.last).toMatchObject({ do: "follow", turn: "t", after: 0 });
    for (const seq of [1, 2, 2, 3]) kernel.tells({ event: event(seq) });
    expect([early, late]).toEqual([[1, 2, 3], [3]]);
  });

  it("takes up a lost turn where it was, and leaves one that nobody follows", () => {
    const end = transport.follow("t", "s", 0, () => undefined);
    kernel.tells({ event: event(4) });
    kernel.tells({ lost: "t" });
    vi.advanceTimersByTime(1_000);
    expect(kernel.last).toMatchObject({ do: "follow", turn: "t", after: 4 });
    end();
    expect(kernel.last).toMatchObject({ do: "unfollow", turn: "t" });
  });

  it("begins at its place when it is followed anew, whatever is on its way still", () => {
    const first: number[] = [];
    const second: number[] = [];
    const end = transport.follow("t", "s", 0, ({ seq }) => first.push(seq));
    const { number } = kernel.last;
    kernel.says({ number, event: event(1) });
    end();
    transport.follow("t", "s", 0, ({ seq }) => second.push(seq));
    kernel.tells({ event: event(1) });
    kernel.says({ number, event: event(9) });
    kernel.says({ number, unknown: "t" });
    kernel.says({ number, event: event(10, "turn.finished") });
    kernel.tells({ event: event(2) });
    expect([first, second]).toEqual([[1], [1, 2]]);
  });

  it("asks for no turn any more when it was closed before it could", () => {
    transport.follow("t", "s", 0, () => undefined);
    kernel.tells({ lost: "t" });
    transport.close();
    vi.advanceTimersByTime(5_000);
    expect(kernel.last).toMatchObject({ do: "leave" });
  });

  it("hears news of what it watches, renews it, and says when it leaves", async () => {
    const kinds: string[] = [];
    transport.watch({ kernel: "k" }, ({ type }) => kinds.push(type));
    expect(kernel.last).toMatchObject({ do: "watch", target: "kernel" });
    kernel.says({ target: "kernel", news: { type: "turn.opened" } });
    kernel.says({ target: "session:other", news: { type: "turn.closed" } });
    expect(kinds).toEqual(["turn.opened"]);
    const before = kernel.heard.length;
    vi.advanceTimersByTime(60_000);
    expect(kernel.heard.slice(before)).toMatchObject([{ do: "watch", target: "kernel" }]);
    const open = transport.request("GET", "never answered");
    transport.close();
    await expect(open).rejects.toMatchObject({ status: 0 });
    expect(kernel.last).toMatchObject({ do: "leave" });
  });

  it("makes bytes of buffers", async () => {
    const asked = transport.bytes("sessions/s/blobs/h");
    const data = new Uint8Array([9, 1, 2, 3, 9]);
    kernel.says({ id: kernel.last["id"], body: { mime: "image/png" } }, [new DataView(data.buffer, 1, 3)]);
    const blob = await asked;
    expect([blob.type, blob.size]).toEqual(["image/png", 3]);
  });
});
