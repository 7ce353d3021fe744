/** The transport to the Jupyter server of this page: requests over HTTP, events over one WebSocket. The WebSocket
 * reconnects, and every turn that is followed continues after its last received event. */
import { signal } from "@preact/signals";
import type { TurnEvent } from "../wire/events";
import { CLOSED, type ClientMessage, type News, type ServerMessage, type Serving } from "../wire/socket";
import { readError, readEventStream, offlineError, stoppedError, uploadBody } from "./http";
import { Followers } from "./followers";
import { ServedKernels } from "./servedKernels";
import { ApiError, type Close, type Connection, type Transport } from "./transport";

const AGAIN_AFTER_MS = [250, 500, 1_000, 2_000, 5_000];
const PING_EVERY_MS = 25_000;
const SILENT_FOR_MS = 60_000;

export interface ServerSettings {
  /** With a trailing slash. */
  baseUrl: string;
  wsUrl: string;
  /** Jupyter's token, for a page without a cookie. It is sent in a header, never in a URL. */
  token?: string;
}

export class ServerTransport implements Transport {
  readonly connection = signal<Connection>("connecting");
  readonly #api: string;
  readonly #socketUrl: string;
  readonly #token: string;
  readonly #followers = new Followers((ask) => this.#ask(ask));
  readonly #watched = new Map<string, Set<(news: News) => void>>();
  readonly #served = new ServedKernels((ask) => this.#ask(ask));
  #socket: WebSocket | null = null;
  #failures = 0;
  #again: ReturnType<typeof setTimeout> | undefined;
  #pings: ReturnType<typeof setInterval> | undefined;
  #heard = 0;
  #closed = false;

  constructor(settings: ServerSettings) {
    this.#api = `${settings.baseUrl}agent/v1/`;
    this.#socketUrl = `${settings.wsUrl}agent/v1/socket`;
    this.#token = settings.token ?? "";
    this.#open();
    globalThis.addEventListener("online", this.#atOnce);
    globalThis.addEventListener("offline", this.#doubted);
  }

  async request<Answer>(method: string, path: string, body?: unknown): Promise<Answer> {
    const answer = await this.#fetch(method, path, body);
    return (answer.status === 204 ? undefined : await answer.json()) as Answer;
  }

  async bytes(path: string): Promise<Blob> {
    return await (await this.#fetch("GET", path)).blob();
  }

  upload<Answer>(
    path: string,
    body: Blob | FormData,
    told: (part: number) => void,
    stop?: AbortSignal,
  ): Promise<Answer> {
    return uploadBody<Answer>(this.#api + path, this.#headers(), body, told, stop);
  }

  async lines(path: string, body: unknown, listener: (line: unknown) => void, stop?: AbortSignal): Promise<void> {
    const answer = await this.#fetch("POST", path, body, stop);
    try {
      await readEventStream(answer, listener);
    } catch (error) {
      throw stop?.aborted ? new ApiError(0, stoppedError()) : error;
    }
  }

  retry(): void {
    this.#atOnce();
  }

  follow(turn: string, session: string, after: number, listener: (event: TurnEvent) => void): Close {
    return this.#followers.follow(turn, session, after, listener);
  }

  watch(target: { session: string } | { kernel: string }, listener: (news: News) => void): Close {
    const key = JSON.stringify(target);
    const listeners = this.#watched.get(key) ?? new Set();
    this.#watched.set(key, listeners.add(listener));
    this.#ask({ do: "watch", ...target });
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#watched.delete(key)) {
        this.#ask({ do: "unwatch", ...target });
      }
    };
  }

  serve(serving: Serving): Close {
    return this.#served.add(serving);
  }

  async servesKernel(kernel: string): Promise<void> {
    if (this.connection.value !== "offline") await this.#served.confirmed(kernel);
  }

  close(): void {
    this.#closed = true;
    globalThis.removeEventListener("online", this.#atOnce);
    globalThis.removeEventListener("offline", this.#doubted);
    clearTimeout(this.#again);
    clearInterval(this.#pings);
    this.#socket?.close();
  }

  #headers(): Headers {
    const headers = new Headers({ Accept: "application/json" });
    const xsrf = /(?:^|; )_xsrf=([^;]+)/.exec(document.cookie)?.[1];
    if (xsrf) {
      headers.set("X-XSRFToken", xsrf);
    }
    if (this.#token) {
      headers.set("Authorization", `token ${this.#token}`);
    }
    return headers;
  }

  async #fetch(method: string, path: string, body?: unknown, stop?: AbortSignal): Promise<Response> {
    const headers = this.#headers();
    const init: RequestInit = { method, headers, credentials: "same-origin", ...(stop ? { signal: stop } : {}) };
    if (body !== undefined) {
      headers.set("Content-Type", "application/json");
      init.body = JSON.stringify(body);
    }
    let answer: Response;
    try {
      answer = await fetch(this.#api + path, init);
    } catch {
      throw new ApiError(0, stop?.aborted ? stoppedError() : offlineError());
    }
    if (!answer.ok) {
      throw new ApiError(answer.status, readError(await answer.text(), answer.status));
    }
    return answer;
  }

  #open(): void {
    clearTimeout(this.#again);
    const socket = new WebSocket(this.#socketUrl);
    this.#socket = socket;
    socket.onopen = () => {
      this.#failures = 0;
      this.#heard = Date.now();
      this.connection.value = "online";
      this.#served.announceAll();
      for (const key of this.#watched.keys()) {
        this.#ask({ do: "watch", ...(JSON.parse(key) as { session: string }) });
      }
      this.#followers.resumeAll();
      clearInterval(this.#pings);
      this.#pings = setInterval(() => this.#ping(), PING_EVERY_MS);
    };
    socket.onmessage = ({ data }) => {
      this.#heard = Date.now();
      this.#hear(JSON.parse(data as string) as ServerMessage);
    };
    socket.onclose = ({ code }) => {
      if (this.#socket !== socket || this.#closed) return;
      if (code === CLOSED.notAllowed) this.#refused();
      else this.#lost();
    };
  }

  /** The server closed the connection because the user may not read any more. It is not reconnected. */
  #refused(): void {
    clearInterval(this.#pings);
    this.#socket = null;
    this.connection.value = "offline";
  }

  #lost(): void {
    clearInterval(this.#pings);
    this.#socket = null;
    this.connection.value = this.#failures > 1 ? "offline" : "connecting";
    const wait = AGAIN_AFTER_MS[Math.min(this.#failures++, AGAIN_AFTER_MS.length - 1)] ?? 5_000;
    this.#again = setTimeout(() => this.#open(), wait * (0.75 + Math.random() / 2));
  }

  readonly #atOnce = (): void => {
    if (this.#socket === null && !this.#closed) this.#open();
  };

  /** The browser reports that it is offline. Close the socket, which would notice it much later, and reconnect:
   * a server on this machine can be reached without a network. */
  readonly #doubted = (): void => {
    const socket = this.#socket;
    if (socket === null || this.#closed) return;
    this.#lost();
    socket.close();
  };

  /** A connection without a response to pings is closed, whatever its state is in the browser. */
  #ping(): void {
    if (Date.now() - this.#heard > SILENT_FOR_MS) {
      this.#socket?.close();
    } else {
      this.#served.ping();
    }
  }

  /** Send a message over the WebSocket. Returns false, and sends nothing, if it is not connected. */
  #ask(ask: ClientMessage): boolean {
    if (this.#socket?.readyState !== WebSocket.OPEN) return false;
    this.#socket.send(JSON.stringify(ask));
    return true;
  }

  #hear(said: ServerMessage): void {
    if ("seq" in said) {
      this.#followers.deliver(said);
      return;
    }
    if (said.type === "pong") {
      this.#served.pong();
      return;
    }
    if (said.type === "following") {
      this.#followers.answered(said.turn, said.number);
      return;
    }
    if (said.type === "unknown.turn") {
      this.#followers.forget(said.turn);
      return;
    }
    if ("session" in said) {
      // News of a kernel goes only to listeners of the kernel: its `session` is the session that the notebook is bound
      // to, but the news is not about that session.
      const ofKernel = said.type === "binding.changed" || (said.type === "watching" && said.kernel !== "");
      const keys = ofKernel ? [] : [JSON.stringify({ session: said.session })];
      if ("kernel" in said && said.kernel) keys.push(JSON.stringify({ kernel: said.kernel }));
      for (const key of keys) for (const listener of this.#watched.get(key) ?? []) listener(said);
    }
  }
}
