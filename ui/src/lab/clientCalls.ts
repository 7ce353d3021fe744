/** Runs tool calls of turns in the notebooks that are open here: announces which tools the page can run, claims calls
 * that the server offers, runs each at most once, and sends the result. A call runs in the notebook of its turn, even
 * if another tab is in front. */
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import { randomId } from "../transport/randomId";
import { type Close, errorMessage, isApiError, type Transport } from "../transport/transport";
import type { TurnEvent } from "../wire/events";
import type { Facts } from "../wire/schema";
import type { News } from "../wire/socket";
import { isWritable, liveDocument } from "./notebookSnapshot";
import { edit, insert, type EditResult, move, type Origin, EditRefused, remove } from "./edits";
import { type Answer, runCells } from "./runCells";

export const TOOLS = ["live_document", "insert_cell", "edit_cell", "delete_cell", "move_cell", "run_cells"];
const MAX_OUTPUT = 100_000;
const TRIES_AFTER_MS = [0, 1_000, 3_000];

interface Grant {
  token: string;
  renew_s: number;
  name: string;
  arguments: Facts;
}

interface Followed {
  kernel: string;
  cell: string;
  /** Ids of the calls that the user approved. */
  approved: Set<string>;
  stop: AbortController;
  close: Close;
}

export class Claims {
  /** By kernel id, for each kernel that this page serves: the functions that end the announcement of tools and the
   * watch. */
  readonly #served = new Map<string, Close[]>();
  readonly #turns = new Map<string, Followed>();
  readonly #client = `page:${randomId()}`;
  #disposed = false;

  constructor(
    private readonly tracker: INotebookTracker,
    private readonly transport: Transport,
  ) {
    tracker.widgetAdded.connect(this.#added);
    tracker.forEach((panel) => this.#added(tracker, panel));
  }

  dispose(): void {
    this.#disposed = true;
    this.tracker.widgetAdded.disconnect(this.#added);
    for (const ends of this.#served.values()) for (const end of ends) end();
    for (const turn of this.#turns.values()) turn.close();
    this.#served.clear();
    this.#turns.clear();
  }

  readonly #added = (_: INotebookTracker, panel: NotebookPanel): void => {
    panel.sessionContext.kernelChanged.connect(this.#look);
    panel.disposed.connect(() => setTimeout(this.#look));
    void panel.context.ready.then(this.#look);
  };

  /** Serve the kernels of the notebooks that are open now, and no others. */
  readonly #look = (): void => {
    if (this.#disposed) return;
    const kernels = new Set<string>();
    this.tracker.forEach((panel) => {
      const kernel = kernelOf(panel);
      if (kernel && panel.context.isReady) kernels.add(kernel);
    });
    for (const [kernel, ends] of this.#served) {
      if (kernels.has(kernel)) continue;
      for (const end of ends) end();
      this.#served.delete(kernel);
    }
    for (const kernel of kernels) {
      if (this.#served.has(kernel)) continue;
      const heard = (news: News) => this.#heard(kernel, news);
      this.#served.set(kernel, [
        this.transport.serve({ kernel, tools: TOOLS }),
        this.transport.watch({ kernel }, heard),
      ]);
    }
  };

  #heard(kernel: string, news: News): void {
    if (news.type !== "turn.opened" || this.#turns.has(news.turn)) return;
    const { turn, session, cell } = news;
    const followed: Followed = {
      kernel,
      cell,
      approved: new Set(),
      stop: new AbortController(),
      close: () => undefined,
    };
    this.#turns.set(turn, followed);
    followed.close = this.transport.follow(turn, session, 0, (event) => this.#event(followed, event));
  }

  #event(followed: Followed, event: TurnEvent): void {
    if (event.type === "turn.finished") {
      followed.stop.abort();
      followed.close();
      this.#turns.delete(event.turn);
    } else if (event.type === "approval.resolved") {
      if (event.data.decision === "approve") followed.approved.add(event.data.call);
    } else if (event.type === "call.offered" && TOOLS.includes(event.data.name)) {
      void this.#take(followed, event.turn, event.data.call);
    }
  }

  async #take(followed: Followed, turn: string, call: string): Promise<void> {
    const claims = `turns/${turn}/claims`;
    const claim = { call, client: this.#client };
    const origin = { turn, call, ...(followed.approved.has(call) ? { accepted: true } : {}) };
    try {
      const panel = await this.#panelOf(followed);
      if (!panel) {
        const declined = "the notebook is not open here (any more), or has another kernel now";
        await this.transport.request("POST", claims, { ...claim, declined });
        return;
      }
      const grant = await this.transport.request<Grant>("POST", claims, claim);
      await this.#run(panel, `${claims}/${encodeURIComponent(call)}`, origin, grant, followed.stop.signal);
    } catch (error) {
      if (!isApiError(error)) throw error; // another client has claimed the call, or the turn has ended
    }
  }

  async #run(
    panel: NotebookPanel,
    path: string,
    origin: Origin,
    { token, renew_s, name, arguments: given }: Grant,
    stop: AbortSignal,
  ): Promise<void> {
    const say = async (action: string, body: Facts = {}) =>
      this.transport.request("POST", path, { action, token, ...body });
    const aside = (action: string, body?: Facts) => void say(action, body).catch(() => undefined);
    const renewal = setInterval(() => aside("renew"), renew_s * 1_000);
    let room = MAX_OUTPUT;
    const output = (text: string) => {
      if ((room -= text.length) >= 0) aside("output", { stream: "stdout", text });
    };
    try {
      const answer = await answerTo(panel, name, given, origin, { stop, output });
      await this.#finish(say, answer, stop);
    } finally {
      clearInterval(renewal);
    }
  }

  async #finish(
    say: (action: string, body: Facts) => Promise<unknown>,
    answer: Answer,
    stop: AbortSignal,
  ): Promise<void> {
    for (const wait of TRIES_AFTER_MS) {
      await new Promise((resolve) => setTimeout(resolve, wait));
      try {
        await say("finish", { media: [], details: {}, ...answer } as unknown as Facts);
        return;
      } catch (error) {
        if (!isApiError(error)) throw error;
        if (error.status === 404 || error.status === 409 || stop.aborted) return;
        if (error.status !== 0 && error.status < 500) {
          answer = { status: "error", text: `${answer.text} What there is to tell was refused: ${error.message}` };
        }
      }
    }
  }

  /** The notebook of the turn; null if it is not open here. If several open notebooks use its kernel, it is the
   * notebook with the turn's cell, or otherwise the one that the server has bound to the kernel. */
  async #panelOf({ kernel, cell }: Followed): Promise<NotebookPanel | null> {
    const panels: NotebookPanel[] = [];
    this.tracker.forEach((panel) => {
      if (kernelOf(panel) === kernel && !panel.isDisposed && panel.context.isReady) panels.push(panel);
    });
    if (panels.length < 2) return panels[0] ?? null;
    const own = panels.filter((panel) => cell && panel.content.widgets.some((widget) => widget.model.id === cell));
    if (own.length === 1) return own[0] ?? null;
    const query = `binding?kernel=${encodeURIComponent(kernel)}`;
    const { notebook } = await this.transport.request<{ notebook: string | null }>("GET", query);
    return panels.find((panel) => panel.context.localPath === notebook) ?? null;
  }
}

async function answerTo(
  panel: NotebookPanel,
  name: string,
  given: Facts,
  origin: Origin,
  telling: Parameters<typeof runCells>[2],
): Promise<Answer> {
  try {
    if (name === "live_document") return { status: "success", text: "", details: liveDocument(panel) };
    if (name === "run_cells") {
      return await runCells(panel, given["cells"] as unknown as Parameters<typeof runCells>[1], telling);
    }
    return { status: "success", text: "", details: applyChange(panel, name, given, origin) };
  } catch (error) {
    if (error instanceof EditRefused) return { status: "error", text: error.message };
    return { status: "error", text: `The page could not do it: ${errorMessage(error)}` };
  }
}

function applyChange(panel: NotebookPanel, name: string, given: Facts, origin: Origin): Facts {
  const notebook = panel.content.model?.sharedModel;
  if (!notebook) throw new EditRefused("The notebook was closed.");
  if (!isWritable(panel))
    throw new EditRefused("The notebook is read-only; propose the change in your answer instead.");
  let made: EditResult;
  if (name === "insert_cell") made = insert(notebook, given, origin);
  else if (name === "edit_cell") made = edit(notebook, given, origin);
  else if (name === "delete_cell") made = remove(notebook, given);
  else if (name === "move_cell") made = move(notebook, given);
  else throw new EditRefused(`This page has no ${name}.`);
  return { ...made, notebook: panel.context.localPath };
}

const kernelOf = (panel: NotebookPanel): string => panel.sessionContext.session?.kernel?.id ?? "";
