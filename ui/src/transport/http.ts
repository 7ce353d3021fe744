/** What `fetch` does not provide: uploads with progress, and server-sent events in the body of a POST. */
import type { ErrorBody } from "../wire/events";
import { ApiError } from "./transport";
import { trans } from "../translation/translation";

export const offlineError = (): ErrorBody => ({
  code: "offline",
  message: trans.__("The server does not answer."),
});

export const stoppedError = (): ErrorBody => ({ code: "stopped", message: trans.__("Stopped.") });

/** Read the error in the body of a response. Errors of Jupyter itself or of a proxy have another form, or no body; they
 * become an error with the HTTP status. */
export function readError(text: string, status: number): ErrorBody {
  const http = { code: "http", message: trans.__("The server answered %1.", status) };
  try {
    const error = (JSON.parse(text) as { error?: Partial<ErrorBody> } | null)?.error;
    const told = typeof error?.code === "string" && typeof error.message === "string";
    return told ? (error as ErrorBody) : http;
  } catch {
    return http;
  }
}

/** Upload a body by POST. `told` receives the uploaded fraction, 0 to 1. Rejects with ApiError, also when `stop` is
 * aborted. */
export function uploadBody<Answer>(
  url: string,
  headers: Headers,
  body: Blob | FormData,
  told: (part: number) => void,
  stop?: AbortSignal,
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", url);
    headers.forEach((value, name) => request.setRequestHeader(name, value));
    request.upload.onprogress = ({ loaded, total, lengthComputable }) => told(lengthComputable ? loaded / total : 0);
    request.onerror = () => reject(new ApiError(0, offlineError()));
    request.onabort = () => reject(new ApiError(0, stoppedError()));
    request.onload = () => {
      const { status, responseText } = request;
      if (status >= 200 && status < 300) resolve(JSON.parse(responseText) as Answer);
      else reject(new ApiError(status, readError(responseText, status)));
    };
    stop?.addEventListener("abort", () => request.abort());
    request.send(body);
  });
}

/** Call `listener` with the data of each server-sent event of a response. Comments, which keep the connection open, are
 * skipped. */
export async function readEventStream(answer: Response, listener: (line: unknown) => void): Promise<void> {
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const read = await reader?.read();
    if (!read || read.done) return;
    const frames = (rest + read.value).split(/\r?\n\r?\n/);
    rest = frames.pop() ?? "";
    for (const frame of frames) {
      const data = frame
        .split(/\r?\n/)
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).trimStart())
        .join("\n");
      if (data) listener(JSON.parse(data));
    }
  }
}
