/** The one way from the panel to the server; who mounts the panel says which it is. */
import type { ReadonlySignal } from "@preact/signals";
import type { ErrorBody, TurnEvent } from "../wire/events";
import type { News, Serving } from "../wire/socket";

export type Connection = "connecting" | "online" | "offline";
export type Close = () => void;

/** The server answered with an error, or there was none to answer (status 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly body: ErrorBody,
  ) {
    super(body.message);
  }
}

/** Also of an error that came from the other of the two bundles that a page loads, which has a class of its own. */
export function isApiError(error: unknown): error is ApiError {
  return error instanceof Error && "status" in error && "body" in error;
}

export interface Transport {
  readonly connection: ReadonlySignal<Connection>;

  /** `path` below `agent/v1`. Rejects with ApiError. */
  request<Answer>(method: string, path: string, body?: unknown): Promise<Answer>;

  /** Bytes below `agent/v1`, such as a picture of the store. Rejects with ApiError. */
  bytes(path: string): Promise<Blob>;

  /** A document or a form with a file, by POST; `told` hears which part has gone, 0 to 1. A host without it takes no
   * files. Rejects with ApiError. */
  upload?<Answer>(
    path: string,
    body: Blob | FormData,
    told: (part: number) => void,
    stop?: AbortSignal,
  ): Promise<Answer>;

  /** A POST whose answer comes line by line. A host without it can not show how far a download is. */
  lines?(path: string, body: unknown, listener: (line: unknown) => void): Promise<void>;

  /** Tries at once to reach a server that was lost. */
  retry?(): void;

  /** The events of a turn after number `after`, each once and in order, across lost connections, until its last. */
  follow(turn: string, session: string, after: number, listener: (event: TurnEvent) => void): Close;

  /** What happens in a session or with a kernel: turns that run or begin, changes of the session. */
  watch(target: { session: string } | { kernel: string }, listener: (news: News) => void): Close;

  /** Says which calls this page can run for the notebook of a kernel, as long as it is not closed. */
  serve(serving: Serving): Close;

  close(): void;
}
