/** The stored sessions: find, rename, fork, branch, export and import. `Conversation` decides which session is
 * shown. */
import { signal } from "@preact/signals";
import { ApiError, type Transport } from "../transport/transport";
import type { Brief, Branch, Hit, Listed, Permissions, Session, Trust, UndoResult, Usage } from "../wire/schema";
import type { Conversation } from "./conversation";
import { catchApiError } from "./catchApiError";
import { trans } from "../translation/translation";

const LISTED = 100;
/** Delay before a session is deleted, within which the user can undo it. */
export const REGRET_MS = 6_000;

/** The id of the session to which the server adds files that were uploaded for no session. */
export const UPLOADS = "uploads";

/** Formats of `sessions/{id}/export` that the panel offers, with the suffix of the file. */
export const FORMATS = {
  markdown: { suffix: ".md" },
  notebook: { suffix: ".ipynb" },
  "agent-kernel": { suffix: ".agent.json" },
} as const;
export type Format = keyof typeof FORMATS;

/** One row of the list: a session, and snippets in which a search matched. */
export interface Row {
  session: Brief;
  notebooks: readonly string[];
  found: readonly string[];
}

export class Sessions {
  readonly rows = signal<readonly Row[]>([]);
  readonly loading = signal(false);
  readonly failure = signal<ApiError | null>(null);
  /** Ids of sessions that will be deleted soon; this can still be undone. */
  readonly leaving = signal<ReadonlySet<string>>(new Set());
  readonly #timers = new Map<string, ReturnType<typeof setTimeout>>();
  #asked = 0;

  constructor(
    private readonly transport: Transport,
    private readonly conversation: Conversation,
  ) {}

  /** Search sessions: first those whose title matches, then those in whose messages the words occur. */
  async find(words: string): Promise<void> {
    const asked = ++this.#asked;
    const name = encodeURIComponent(words.trim());
    const place = this.conversation.query;
    this.loading.value = true;
    await catchApiError(this.failure, async () => {
      const [named, said] = await Promise.all([
        this.transport.request<{ sessions: Listed[] }>(
          "GET",
          `sessions?limit=${LISTED}${name && `&name=${name}`}${place && `&${place}`}`,
        ),
        name ? this.transport.request<{ hits: Hit[] }>("GET", `search?q=${name}&limit=20`) : { hits: [] },
      ]);
      if (asked === this.#asked) this.rows.value = rows(named.sessions, said.hits);
    });
    if (asked === this.#asked) this.loading.value = false;
  }

  async rename(id: string, title: string): Promise<void> {
    const changed = await this.transport.request<Session>("PATCH", `sessions/${id}`, { title });
    this.rows.value = this.rows.value.map((row) =>
      row.session.id === id ? { ...row, session: { ...row.session, title: changed.title } } : row,
    );
    if (this.conversation.session.value?.id === id) this.conversation.session.value = changed;
  }

  /** Delete a session after REGRET_MS, so that the user can undo it. When the list is closed, `flush` deletes it at
   * once. */
  remove(id: string): void {
    this.leaving.value = new Set([...this.leaving.value, id]);
    this.#timers.set(
      id,
      setTimeout(() => void this.#removed(id), REGRET_MS),
    );
  }

  keep(id: string): void {
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
    this.leaving.value = new Set([...this.leaving.value].filter((other) => other !== id));
  }

  /** Delete all sessions at once that wait to be deleted. Call this when the user can no longer undo it. */
  async flush(): Promise<void> {
    await Promise.all([...this.#timers.keys()].map((id) => this.#removed(id)));
  }

  /** Start a new session, for this notebook if there is one. If the current session is new and empty, show it instead,
   * so that the list has no session without content. */
  async begin(options: { private?: boolean } = {}): Promise<void> {
    const { query, entries } = this.conversation;
    const current = this.conversation.session.value;
    if (
      current &&
      entries.value.length === 0 &&
      isUnused(current, options.private ?? (query ? current.private : false))
    )
      return this.#show(current.id);
    const made = await this.transport.request<Session>("POST", `sessions?${query}`, { bind: query !== "", ...options });
    await this.#show(made.id);
  }

  /** Copy a session and show the copy. Its title says that it is one. */
  async fork({ id, title }: Brief): Promise<void> {
    const { query } = this.conversation;
    const made = await this.transport.request<Session>("POST", `sessions/${id}/fork?${query}`, { bind: query !== "" });
    if (title) await this.rename(made.id, trans.__("%1 (copy)", title));
    await this.#show(made.id);
  }

  /** Bind the current notebook to a session and show it. */
  async openHere(id: string): Promise<void> {
    const { query } = this.conversation;
    if (query) await this.transport.request("PUT", `binding?${query}`, { session: id });
    await this.#show(id);
  }

  async clear(id: string): Promise<void> {
    await this.transport.request("POST", `sessions/${id}/clear`, {});
    await this.conversation.reload(id);
  }

  /** Summarise the oldest messages. Returns false if none were old enough. */
  async compact(id: string): Promise<boolean> {
    const made = await this.transport.request<{ summary: object | null }>("POST", `sessions/${id}/compact`, {});
    return made.summary !== null;
  }

  async undo(id: string): Promise<UndoResult | null> {
    const { undone } = await this.transport.request<{ undone: UndoResult | null }>("POST", `sessions/${id}/undo`, {});
    if (undone) await this.conversation.reload(id);
    return undone;
  }

  async branches(id: string): Promise<Branch[]> {
    return (await this.transport.request<{ branches: Branch[] }>("GET", `sessions/${id}/branches`)).branches;
  }

  /** Create a new branch with all turns so far and show it. */
  async branch(id: string, name: string): Promise<void> {
    await this.transport.request("POST", `sessions/${id}/branches`, { name });
    await this.conversation.reload(id);
  }

  async dropBranch(id: string, name: string): Promise<void> {
    await this.transport.request("DELETE", `sessions/${id}/branches/${encodeURIComponent(name)}`);
  }

  async exported(id: string, format: Format): Promise<Blob> {
    return await this.transport.bytes(`sessions/${id}/export?format=${format}`);
  }

  /** Ask the server what an import of the document would add. Nothing is stored. */
  async preview(document: Blob): Promise<Record<string, unknown>> {
    const upload = this.#uploading();
    return (await upload<{ preview: Record<string, unknown> }>("sessions/import?preview=1", document)).preview;
  }

  async bring(document: Blob): Promise<void> {
    const { query } = this.conversation;
    const come = await this.#uploading()<Session>(`sessions/import?${query && `bind=1&${query}`}`, document);
    await this.#show(come.id);
  }

  async usage(id: string): Promise<Usage> {
    return await this.transport.request<Usage>("GET", `sessions/${id}/usage`);
  }

  /** The permissions of the server, and the grants of this session. */
  async permissions(id: string): Promise<Permissions> {
    return await this.transport.request<Permissions>("GET", id ? `sessions/${id}/permissions` : "agent/permissions");
  }

  async revoke(id: string): Promise<void> {
    await this.transport.request("DELETE", `sessions/${id}/permissions`);
  }

  async trust(): Promise<Trust> {
    return await this.transport.request<Trust>("GET", `trust?${this.conversation.query}`);
  }

  get takesDocuments(): boolean {
    return this.transport.upload !== undefined;
  }

  #uploading(): <Answer>(path: string, body: Blob) => Promise<Answer> {
    const { transport } = this;
    if (!transport.upload)
      throw new ApiError(0, { code: "unsupported", message: trans.__("This page cannot send files.") });
    return async <Answer>(path: string, body: Blob) =>
      await (transport.upload?.<Answer>(path, body, () => undefined) ?? Promise.reject(new Error("no upload")));
  }

  async #show(id: string): Promise<void> {
    if (this.conversation.query) await this.conversation.rebind();
    else await this.conversation.openLoose(id);
  }

  async #removed(id: string): Promise<void> {
    if (!this.leaving.value.has(id)) return;
    clearTimeout(this.#timers.get(id));
    this.#timers.delete(id);
    await catchApiError(this.failure, async () => {
      await this.transport.request("DELETE", `sessions/${id}`);
      this.rows.value = this.rows.value.filter((row) => row.session.id !== id);
    });
    this.leaving.value = new Set([...this.leaving.value].filter((other) => other !== id));
  }
}

const isUnused = (session: Session, isPrivate: boolean): boolean =>
  session.turns === 0 && !session.title && session.private === isPrivate && Object.keys(session.metadata).length === 0;

function rows(named: readonly Listed[], hits: readonly Hit[]): Row[] {
  const snippets = new Map(hits.map((hit) => [hit.session.id, hit]));
  const names = new Set(named.map((session) => session.id));
  return [
    ...named.map((session) => ({
      session,
      notebooks: session.notebooks ?? snippets.get(session.id)?.notebooks ?? [],
      found: snippets.get(session.id)?.snippets.map((snippet) => snippet.text) ?? [],
    })),
    ...hits
      .filter((hit) => !names.has(hit.session.id))
      .map(({ session, notebooks, snippets: found }) => ({ session, notebooks, found: found.map(({ text }) => text) })),
  ];
}
