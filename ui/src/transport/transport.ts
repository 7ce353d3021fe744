/** The connection from the panel to the server. The host of the panel chooses the implementation. */
import { serverText } from "../turn/serverTexts";
import type { ReadonlySignal } from "@preact/signals";
import type { ErrorBody, TurnEvent } from "../wire/events";
import type { News, Serving } from "../wire/socket";

export type Connection = "connecting" | "online" | "offline";
export type Close = () => void;

/** The server responded with an error, or did not respond (status 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly body: ErrorBody,
  ) {
    super(serverText(body.message));
  }

  /** What the user can do, in the user's language; empty if the server does not say. */
  get hint(): string {
    return serverText(this.body.hint ?? "");
  }
}

/** Also true for an error of the other of the two bundles in a page, which has its own class. */
export function isApiError(error: unknown): error is ApiError {
  return error instanceof Error && "status" in error && "body" in error;
}

/** What the user reads of an error. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message || error.name : String(error);
}

export interface Transport {
  readonly connection: ReadonlySignal<Connection>;

  /** `path` is relative to `agent/v1`. Rejects with ApiError. */
  request<Answer>(method: string, path: string, body?: unknown): Promise<Answer>;

  /** Bytes at a path relative to `agent/v1`, such as an image of the store. Rejects with ApiError. */
  bytes(path: string): Promise<Blob>;

  /** Upload a document or a form by POST; `told` receives the uploaded fraction, 0 to 1. Absent if the host accepts no
   * files. Rejects with ApiError. */
  upload?<Answer>(
    path: string,
    body: Blob | FormData,
    told: (part: number) => void,
    stop?: AbortSignal,
  ): Promise<Answer>;

  /** A POST whose response is a stream of events. Absent if the host has no streams. Rejects with ApiError, also when
   * `stop` is aborted. */
  lines?(path: string, body: unknown, listener: (line: unknown) => void, stop?: AbortSignal): Promise<void>;

  /** Reconnect now. */
  retry?(): void;

  /** The events of a turn after number `after`, each once and in order, across lost connections, until the last one. */
  follow(turn: string, session: string, after: number, listener: (event: TurnEvent) => void): Close;

  /** News of a session or a kernel: turns that run or start, changes of the session. */
  watch(target: { session: string } | { kernel: string }, listener: (news: News) => void): Close;

  /** Announce which calls this page can run for the notebook of a kernel. The returned function ends the announcement. */
  serve(serving: Serving): Close;

  /** Resolves when the server knows the calls that `serve` announced for a kernel, and after a few seconds in any case.
   * Absent if the host cannot run tool calls. */
  servesKernel?(kernel: string): Promise<void>;

  close(): void;
}
