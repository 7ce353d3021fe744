/** The interface of the connection from the panel to the server, and the error of a request. The host of the panel
 * (JupyterLab, a widget, the web page) chooses the implementation: `ServerTransport` over HTTP, or `CommTransport`
 * through the kernel. */
import { serverText } from "../turn/serverTexts";
import type { ReadonlySignal } from "@preact/signals";
import type { ErrorBody, TurnEvent } from "../wire/events";
import type { News, Serving } from "../wire/socket";

export type Connection = "connecting" | "online" | "offline";
export type Close = () => void;

/** The error of a request: the server responded with an error, or did not respond (status 0). */
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

/** Whether an error is an ApiError. JupyterLab loads two bundles of ours, each with its own class ApiError, so the
 * error is recognised by its properties and not by its class. */
export function isApiError(error: unknown): error is ApiError {
  return error instanceof Error && "status" in error && "body" in error;
}

/** The message of any error, as a text for the user. */
export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message || error.name : String(error);
}

export interface Transport {
  readonly connection: ReadonlySignal<Connection>;

  /** Send a request and return the JSON of the response. `path` is relative to `agent/v1`. Rejects with ApiError. */
  request<Answer>(method: string, path: string, body?: unknown): Promise<Answer>;

  /** Fetch bytes, such as an image of the store. `path` is relative to `agent/v1`. Rejects with ApiError. */
  bytes(path: string): Promise<Blob>;

  /** Upload a document or a form by POST; `told` receives the uploaded fraction, 0 to 1. Absent if the host accepts no
   * files. Rejects with ApiError. */
  upload?<Answer>(
    path: string,
    body: Blob | FormData,
    told: (part: number) => void,
    stop?: AbortSignal,
  ): Promise<Answer>;

  /** Send a POST whose response is a stream of events, and call `listener` with the data of each event. Absent if the
   * host has no streams. Rejects with ApiError, also when `stop` is aborted; if the connection ends within the stream,
   * it rejects with the error of `fetch`. */
  lines?(path: string, body: unknown, listener: (line: unknown) => void, stop?: AbortSignal): Promise<void>;

  /** Reconnect at once, without waiting for the next automatic attempt. Absent if the transport does not reconnect by
   * itself. */
  retry?(): void;

  /** Call `listener` with each event of a turn whose `seq` is greater than `after`: each event once and in order, up to
   * the last event of the turn, even if the connection is lost in between. Returns a function that stops it. */
  follow(turn: string, session: string, after: number, listener: (event: TurnEvent) => void): Close;

  /** Call `listener` with the news of a session or of a kernel: turns that start, end or wait for the user, and changes
   * of the session. Returns a function that stops it. */
  watch(target: { session: string } | { kernel: string }, listener: (news: News) => void): Close;

  /** Announce to the server which tool calls this page can run in the notebook of a kernel. The returned function
   * withdraws the announcement. */
  serve(serving: Serving): Close;

  /** Resolves when the server has confirmed the tool calls that `serve` announced for a kernel, or after a few seconds
   * without confirmation. Absent if the host cannot run tool calls. */
  servesKernel?(kernel: string): Promise<void>;

  close(): void;
}
