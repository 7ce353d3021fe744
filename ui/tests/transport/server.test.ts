import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { ServerTransport } from "../../src/transport/server";
import type { TurnEvent } from "../../src/wire/events";
import { CLOSED, type ClientMessage, type ServerMessage } from "../../src/wire/socket";

/** The server's end of the page's connection, as a test moves it. */
class Socket {
  static readonly OPEN = 1;
  static last: Socket;
  readyState = 0;
  asked: ClientMessage[] = [];
  onopen: () => void = () => undefined;
  onmessage: (message: { data: string }) => void = () => undefined;
  onclose: (event: { code: number }) => void = () => undefined;

  constructor(readonly url: string) {
    Socket.last = this;
  }

  send(text: string): void {
    this.asked.push(JSON.parse(text) as ClientMessage);
  }

  close(code = 1006): void {
    this.readyState = 3;
    this.onclose({ code });
  }

  opened(): this {
    this.readyState = Socket.OPEN;
    this.onopen();
    return this;
  }

  say(...all: ServerMessage[]): void {
    for (const one of all) this.onmessage({ data: JSON.stringify(one) });
  }

  /** Of the follow that was asked for last. */
  begin(): void {
    const ask = this.asked.findLast((one) => one.do === "follow");
    if (ask?.do === "follow") this.say({ type: "following", turn: ask.turn, number: ask.number });
  }
}

const word = (seq: number): TurnEvent => ({
  ...{ seq, turn: "t", session: "s", round: 1, time: 0 },
  type: "text.delta",
  data: { text: `w${seq}` },
});
const end = (seq: number): TurnEvent => ({
  ...word(seq),
  type: "turn.finished",
  data: { state: "committed", reason: "", rounds: 1, usage: {}, error: null, finish: "", stopped: "" },
});

let transport: ServerTransport;
let socket: Socket;
beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("WebSocket", Socket);
  transport = new ServerTransport({ baseUrl: "/", wsUrl: "ws://here/", token: "secret" });
  socket = Socket.last.opened();
});
afterEach(() => {
  transport.close();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

function heard(after = 0): { numbers: number[]; close: () => void } {
  const numbers: number[] = [];
  return { numbers, close: transport.follow("t", "s", after, ({ seq }) => numbers.push(seq)) };
}

test("a turn that is followed anew begins at its place, whatever was on its way", () => {
  const before = heard();
  socket.begin();
  socket.say(word(1), word(2));
  before.close();
  const anew = heard();
  socket.say(word(3), end(4));
  expect(anew.numbers).toEqual([]);
  socket.begin();
  socket.say(word(1), word(2), word(3), end(4));
  expect(anew.numbers).toEqual([1, 2, 3, 4]);
  expect(before.numbers).toEqual([1, 2]);
});

test("only the answer to the last question counts", () => {
  heard().close();
  const anew = heard();
  const [first] = socket.asked;
  if (first?.do === "follow") socket.say({ type: "following", turn: "t", number: first.number }, word(9));
  expect(anew.numbers).toEqual([]);
});

test("who comes second hears all, and who was there nothing twice", () => {
  const first = heard();
  socket.begin();
  socket.say(word(1), word(2));
  const second = heard();
  socket.begin();
  socket.say(word(1), word(2), word(3));
  expect(first.numbers).toEqual([1, 2, 3]);
  expect(second.numbers).toEqual([1, 2, 3]);
});

test("a lost connection goes on where each turn was, and no address holds the token", () => {
  const all = heard();
  socket.begin();
  socket.say(word(1), word(2));
  socket.close();
  vi.advanceTimersByTime(10_000);
  expect(Socket.last).not.toBe(socket);
  const again = Socket.last.opened();
  expect(again.asked).toEqual([expect.objectContaining({ do: "follow", turn: "t", session: "s", after: 2 })]);
  again.begin();
  again.say(word(3), end(4));
  expect(all.numbers).toEqual([1, 2, 3, 4]);
  expect(again.url).not.toContain("secret");
});

test("who may not read any more is not tried again, but by hand", () => {
  socket.close(CLOSED.notAllowed);
  vi.advanceTimersByTime(60_000);
  expect(Socket.last).toBe(socket);
  expect(transport.connection.value).toBe("offline");
  transport.retry();
  expect(Socket.last).not.toBe(socket);
  Socket.last.opened();
  expect(transport.connection.value).toBe("online");
});

test.each([['{"message": "Forbidden", "reason": null}'], ['{"error": "no"}'], ["null"], ["<html>"]])(
  "an error that is not of the agent's shape is told by its number: %s",
  async (body) => {
    vi.stubGlobal("fetch", () => Promise.resolve(new Response(body, { status: 403 })));
    const refused = await transport.request("GET", "binding").catch((error: unknown) => error);
    expect(refused).toMatchObject({ status: 403, body: { code: "http" }, message: "The server answered 403." });
  },
);

test("an error of the agent is told in its words", async () => {
  const error = { code: "conflict", message: "A turn is running.", hint: "Stop it." };
  vi.stubGlobal("fetch", () => Promise.resolve(Response.json({ error }, { status: 409 })));
  await expect(transport.request("GET", "binding")).rejects.toMatchObject({ status: 409, body: error });
});

describe("a kernel that the page serves", () => {
  const serving = { kernel: "k", tools: ["edit_cell"] };

  /** Whether a message for the kernel may go now. */
  async function mayGo(kernel = "k"): Promise<boolean> {
    let may = false;
    void transport.servesKernel(kernel).then(() => (may = true));
    await vi.advanceTimersByTimeAsync(0);
    return may;
  }

  test("is announced, and a message waits until the server has read that", async () => {
    transport.serve(serving);
    expect(socket.asked).toEqual([{ do: "serve", ...serving }, { do: "ping" }]);
    const sent = vi.fn();
    void transport.servesKernel("k").then(sent);
    await vi.advanceTimersByTimeAsync(100);
    expect(sent).not.toHaveBeenCalled();
    socket.say({ type: "pong" });
    await vi.advanceTimersByTimeAsync(0);
    expect(sent).toHaveBeenCalledOnce();
    expect(await mayGo()).toBe(true);
  });

  test("is announced again to a server that came back, and the answer to an earlier ping confirms nothing", async () => {
    vi.advanceTimersByTime(25_000);
    transport.serve(serving);
    socket.say({ type: "pong" });
    expect(await mayGo()).toBe(false);
    socket.say({ type: "pong" });
    expect(await mayGo()).toBe(true);
    socket.close();
    vi.advanceTimersByTime(1_000);
    Socket.last.opened();
    expect(await mayGo()).toBe(false);
    expect(Socket.last.asked).toEqual([{ do: "serve", ...serving }, { do: "ping" }]);
    Socket.last.say({ type: "pong" });
    expect(await mayGo()).toBe(true);
  });

  test("delays no message for another kernel, and none for long", async () => {
    const end = transport.serve(serving);
    expect(await mayGo("other")).toBe(true);
    const sent = vi.fn();
    void transport.servesKernel("k").then(sent);
    await vi.advanceTimersByTimeAsync(3_000);
    expect(sent).toHaveBeenCalledOnce();
    end();
    expect(await mayGo()).toBe(true);
  });
});
