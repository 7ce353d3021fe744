/** The transport through the kernel, for pages that cannot reach the kernel's server: messages over the comm of a
 * widget, which threads of the kernel handle. While the kernel runs a cell, it does not read requests of the page; it
 * can send messages to the page at any time. */
import { signal } from "@preact/signals";
import type { ErrorBody, TurnEvent } from "../wire/events";
import type { News } from "../wire/socket";
import { Followers } from "./followers";
import { randomId } from "./randomId";
import { ApiError, type Close, type Connection, type Transport } from "./transport";
import { trans } from "../translation/translation";

const RENEW_EVERY_MS = 60_000;
const FOLLOW_AGAIN_MS = 1_000;

/** The model of a widget, as anywidget provides it. */
export interface CommModel {
  send(content: unknown): void;
  on(event: "msg:custom", listener: (content: unknown, buffers: readonly DataView[]) => void): void;
  off(event: "msg:custom", listener: (content: unknown, buffers: readonly DataView[]) => void): void;
}

/** Messages from the kernel (`agent_kernel/notebook/panel/server_relay.py`). `to` is the id of the view that sent the
 * request, `id` or `number` the number of that request. */
type KernelMessage = { to: string } & (
  | { id: number; body: unknown }
  | { id: number; error: ErrorBody }
  | { event: TurnEvent; number: number }
  | { unknown: string; number: number }
  | { lost: string; number: number }
  | { target: string; news: News }
);

interface Waiting {
  answered: (body: unknown, buffers: readonly DataView[]) => void;
  refused: (error: ErrorBody) => void;
}

export class CommTransport implements Transport {
  readonly connection = signal<Connection>("connecting");
  readonly #to = randomId();
  readonly #waiting = new Map<number, Waiting>();
  readonly #followers = new Followers((ask) => this.#say(ask));
  readonly #watched = new Map<string, Set<(news: News) => void>>();
  readonly #renewing: ReturnType<typeof setInterval>;
  #asked = 0;

  constructor(private readonly model: CommModel) {
    model.on("msg:custom", this.#hear);
    this.#renewing = setInterval(() => this.#renew(), RENEW_EVERY_MS);
  }

  async request<Answer>(method: string, path: string, body?: unknown): Promise<Answer> {
    return (await this.#ask({ do: "request", method, path, body: body ?? null })).body as Answer;
  }

  async bytes(path: string): Promise<Blob> {
    const { body, buffers } = await this.#ask({ do: "bytes", path });
    const parts = buffers.map((view) => new Uint8Array(view.buffer as ArrayBuffer, view.byteOffset, view.byteLength));
    return new Blob(parts, { type: (body as { mime: string }).mime });
  }

  follow(turn: string, session: string, after: number, listener: (event: TurnEvent) => void): Close {
    return this.#followers.follow(turn, session, after, listener);
  }

  watch(target: { session: string } | { kernel: string }, listener: (news: News) => void): Close {
    const name = "session" in target ? `session:${target.session}` : "kernel";
    const listeners = this.#watched.get(name) ?? new Set();
    this.#watched.set(name, listeners.add(listener));
    this.#say({ do: "watch", target: name });
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0) this.#watched.delete(name);
    };
  }

  /** Does nothing: a page with this transport cannot change the notebook, so it cannot run tool calls. */
  serve(): Close {
    return () => undefined;
  }

  close(): void {
    clearInterval(this.#renewing);
    this.model.off("msg:custom", this.#hear);
    this.#followers.close();
    this.#say({ do: "leave" });
    const gone: ErrorBody = { code: "offline", message: trans.__("The panel was closed.") };
    for (const { refused } of this.#waiting.values()) refused(gone);
    this.#waiting.clear();
  }

  #ask(asked: object): Promise<{ body: unknown; buffers: readonly DataView[] }> {
    const id = ++this.#asked;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, {
        answered: (body, buffers) => resolve({ body, buffers }),
        refused: (error) => reject(new ApiError(statusOf(error.code), error)),
      });
      this.#say({ ...asked, id });
    });
  }

  #say(content: object): void {
    this.model.send({ ...content, to: this.#to });
  }

  #renew(): void {
    for (const target of this.#watched.keys()) this.#say({ do: "watch", target });
  }

  readonly #hear = (content: unknown, buffers: readonly DataView[]): void => {
    const heard = content as KernelMessage;
    if (heard.to !== this.#to) return;
    this.connection.value = "online";
    if ("id" in heard) this.#answered(heard, buffers);
    else if ("number" in heard) this.#followed(heard);
    else for (const listener of this.#watched.get(heard.target) ?? []) listener(heard.news);
  };

  #answered(heard: { id: number } & ({ body: unknown } | { error: ErrorBody }), buffers: readonly DataView[]): void {
    const waiting = this.#waiting.get(heard.id);
    this.#waiting.delete(heard.id);
    if ("error" in heard) {
      if (statusOf(heard.error.code) === 0) this.connection.value = "offline";
      waiting?.refused(heard.error);
    } else {
      waiting?.answered(heard.body, buffers);
    }
  }

  #followed(heard: Extract<KernelMessage, { number: number }>): void {
    const turn = "event" in heard ? heard.event.turn : "lost" in heard ? heard.lost : heard.unknown;
    if (!this.#followers.answered(turn, heard.number)) return;
    if ("event" in heard) this.#followers.deliver(heard.event);
    else if ("unknown" in heard) this.#followers.forget(turn);
    else setTimeout(() => this.#followers.resume(turn), FOLLOW_AGAIN_MS);
  }
}

/** The HTTP status for an error code. The kernel sends codes only; the panel distinguishes errors by their status. */
function statusOf(code: string): number {
  if (code === "server_unreachable" || code === "offline") return 0;
  if (code.endsWith("not_found")) return 404;
  return code === "forbidden" || code === "unauthenticated" ? 403 : 400;
}
