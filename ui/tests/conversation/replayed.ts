/** A server for tests: it keeps one session, answers as the real one does, and plays events that a real turn had. */
import { signal } from "@preact/signals";
import { ApiError, type Close, type Connection, type Transport } from "../../src/transport/transport";
import type { Meanwhile, StoredTurn } from "../../src/wire/bodyTypes";
import type { Model, ModelServer, ProbeReport, Recommendation, Session } from "../../src/wire/schema";
import type { PullLine } from "../../src/wire/bodyTypes";
import type { TurnEvent } from "../../src/wire/events";
import type { News } from "../../src/wire/socket";
import record from "./recorded.json";

export const recorded = record as unknown as TurnEvent[];

const MODEL = { model: "scripted", local: true, host: "", state: "ready", context_length: 1000, vision: false };

const OFFLINE = new ApiError(0, { code: "offline", message: "The server does not answer." });

export class Replayed implements Transport {
  readonly connection = signal<Connection>("online");
  session: Session = {
    id: "s1",
    title: "Rain",
    branch: "main",
    turns: 1,
    tags: [],
    private: false,
    created: 1,
    updated: 2,
    accessed: 2,
    head: 2,
    revision: 1,
    metadata: {},
    context: null,
    imported: null,
  };
  turns: StoredTurn[] = [];
  olderTurns: StoredTurn[] = [];
  /** Turns that were sent and have not begun. */
  waiting: StoredTurn[] = [];
  /** What `bytes` was asked for. */
  readonly fetched: string[] = [];
  bound = true;
  /** What the server says about the files of the notebook. */
  notes: string[] = [];
  model = MODEL;
  refuses = false;
  policy: Record<string, { permission: string; because: string }> = {};
  readonly meanwhile: Meanwhile = {
    session: "s1",
    since: 0,
    turns: [],
    running: [],
    approvals: [],
    lost: { sandbox: "", pieces: 0, kernel: "" },
    more: false,
    problems: [],
  };
  readonly rebuilt: unknown[] = [];
  offered: Model[] = [];
  mayChange = true;
  recommendation: Recommendation = {
    machine: { memory_bytes: null, available_bytes: null, cores: 2, gpus: [] },
    recommended: null,
    models: [],
  };
  modelServers: ModelServer[] = [];
  probeReport: Partial<ProbeReport> = {};
  /** Of tests and changes of model servers. */
  readonly serverBodies: unknown[] = [];
  pull: PullLine[] = [];
  /** Of `POST turns`. */
  readonly bodies: unknown[] = [];
  readonly #asked: string[] = [];
  readonly #held = new Map<string, Promise<boolean>>();
  readonly #watchers = new Map<string, Set<(news: News) => void>>();
  readonly #followers = new Map<string, (event: TurnEvent) => void>();

  constructor() {
    this.turns.push(this.stored("t1", "add them"));
  }

  stored(turn: string, prompt: string): StoredTurn {
    const events = recorded.map((event) => ({ ...event, turn, session: "s1" }));
    return {
      turn,
      session: "s1",
      state: "committed",
      running: false,
      prompt,
      cell: "",
      context: [],
      inputs: [],
      media: [],
      model: "scripted",
      where: "sandbox",
      usage: {},
      record: {},
      created: 1,
      closed: 2,
      events,
    };
  }

  asked(method: string, path: string): number {
    return this.#asked.filter((one) => one === `${method} ${path}`).length;
  }

  request<Answer>(method: string, path: string, body?: unknown): Promise<Answer> {
    this.#asked.push(`${method} ${path}`);
    if (this.refuses) {
      return Promise.reject(OFFLINE);
    }
    const answer = this.#answer(method, path, body) as Answer;
    const [, held] = [...this.#held].find(([key]) => `${method} ${path}`.startsWith(key)) ?? [];
    if (!held) return Promise.resolve(answer);
    return held.then((refused) => (refused ? Promise.reject(OFFLINE) : answer));
  }

  /** Answers of this kind are on their way until what it returns is called; what they say is of when they were asked. */
  hold(asked: string, refused = false): () => Promise<void> {
    let release = () => {};
    this.#held.set(asked, new Promise((resolve) => (release = () => resolve(refused))));
    return async () => {
      this.#held.delete(asked);
      release();
      await this.settled();
    };
  }

  lines(_path: string, _body: unknown, listener: (line: unknown) => void): Promise<void> {
    for (const line of this.pull) listener(line);
    return Promise.resolve();
  }

  bytes(path: string): Promise<Blob> {
    this.fetched.push(path);
    return Promise.resolve(new Blob(["of the store"]));
  }

  /** As the server does it: of a turn that has not begun nothing is stored. */
  cancelWaiting(turn: string, reason = "stopped by the person"): void {
    this.waiting = this.waiting.filter((one) => one.turn !== turn);
    const data = {
      state: "cancelled",
      reason,
      rounds: 0,
      usage: {},
      error: null,
      finish: "",
      stopped: "",
    } as const;
    this.play(turn, [{ seq: 99, turn, session: "s1", round: 0, time: 3, type: "turn.finished", data }]);
  }

  follow(turn: string, _session: string, _after: number, listener: (event: TurnEvent) => void): Close {
    this.#followers.set(turn, listener);
    return () => this.#followers.delete(turn);
  }

  watch(target: { session: string } | { kernel: string }, listener: (news: News) => void): Close {
    const key = Object.values(target)[0] as string;
    const all = this.#watchers.get(key) ?? new Set();
    this.#watchers.set(key, all.add(listener));
    return () => all.delete(listener);
  }

  serve(): Close {
    return () => undefined;
  }

  close(): void {
    this.#watchers.clear();
  }

  tell(news: News): void {
    const keys = [news.session ?? "", "kernel" in news ? news.kernel : ""];
    const heard = new Set(keys.flatMap((key) => [...(this.#watchers.get(key) ?? [])]));
    for (const listener of heard) listener(news);
  }

  play(turn: string, events: readonly TurnEvent[]): void {
    for (const event of events) this.#followers.get(turn)?.({ ...event, turn });
  }

  /** Until all that was asked is answered. */
  async settled(): Promise<void> {
    for (let step = 0; step < 20; step += 1) await Promise.resolve();
  }

  /** As the server does it: what it was sent, without the key. */
  #engines() {
    return this.modelServers.map(({ name, model, local, host }) => ({ name, model, local, host, refused: false }));
  }

  #modelServer(method: string, route: string, body: unknown): unknown {
    if (method === "GET") return { servers: this.modelServers };
    if (method === "DELETE") this.modelServers = [];
    if (method === "DELETE") return { removed: true };
    this.serverBodies.push(body);
    if (route.endsWith("/probe")) return this.probeReport;
    const { url, model } = body as { url: string; model: string };
    const name = route.split("/")[1] ?? "";
    this.modelServers = [{ name, url, model, local: false, host: "models.example.com", key: "keyring" }];
    return this.modelServers[0];
  }

  #answer(method: string, path: string, body: unknown): unknown {
    const [route, query] = path.split("?");
    if (method === "POST" && route === "turns") {
      this.bodies.push(body);
      const turn = `sent-${this.bodies.length}`;
      const { prompt } = body as { prompt: string };
      this.waiting.push({ ...this.stored(turn, prompt), state: "open", running: true, events: [] });
      return { turn, session: this.session.id, title: "", created: false, stored: false };
    }
    const cancelled = /^turns\/(.+)\/cancel$/.exec(route ?? "")?.[1] ?? "";
    if (this.waiting.some(({ turn }) => turn === cancelled))
      this.cancelWaiting(cancelled, (body as { reason?: string }).reason);
    if (route === "binding") {
      const session = this.bound ? this.session : null;
      return { notebook: "rain.ipynb", session, model: MODEL, server: {}, notes: this.notes };
    }
    if (route?.endsWith("/turns")) {
      const before = query?.includes("before=");
      const older = !before && this.olderTurns.length > 0;
      return { turns: before ? this.olderTurns : this.turns, older, waiting: before ? [] : this.waiting };
    }
    if (method === "PATCH") this.session = { ...this.session, ...(body as Partial<Session>) };
    if (route === "sessions" && method === "GET") return { sessions: [this.session] };
    if (route === "models")
      return { may_change: this.mayChange, models: this.offered, engines: this.#engines(), current: this.model };
    if (route?.startsWith("model_servers")) return this.#modelServer(method, route, body);
    if (route === "recommendation") return this.recommendation;
    if (route === "agent/permissions") return { policy: this.policy, grants: [] };
    if (route?.endsWith("/meanwhile")) return this.meanwhile;
    if (route?.endsWith("/rebuild")) {
      this.rebuilt.push(body);
      const piece = { code: "x = 1", seconds: 0.4, effects: [] };
      return { pieces: [piece, piece], ran: 2, status: "success", error: "" };
    }
    const id = /^sessions\/([^/]+)$/.exec(route ?? "")?.[1] ?? this.session.id;
    return route?.startsWith("sessions") ? { ...this.session, id } : {};
  }
}
