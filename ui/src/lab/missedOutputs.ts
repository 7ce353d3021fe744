/** Adds outputs that cells have missed, because their turn ended while no page was open or because their kernel ended.
 * When the notebook is opened, or its kernel has restarted, the outputs are put below the cells as one undoable change.
 * Cells that the user has changed since are left alone. */
import type { Cell } from "@jupyterlab/cells";
import type { IOutput } from "@jupyterlab/nbformat";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";
import { isMagicCell, promptOf } from "../notebook/agentCells";
import { isApiError, type Close, type Transport } from "../transport/transport";
import type { StoredTurn, StoredTurns } from "../wire/bodyTypes";
import type { Binding, Outputs } from "../wire/schema";
import { isCode, outputsOf } from "./outputs";

export const TURN_MIME = "application/vnd.agent-kernel.turn+json";
const LOOKED_AT = 20;
/** The last outputs of a cell and the event that its turn ended arrive over different connections. Wait this long for
 * the outputs. */
const OUTPUTS_COME_WITHIN_MS = 3_000;
/** States of a kernel in which the code of its cells no longer runs. */
const ENDS = new Set(["restarting", "autorestarting", "terminating", "dead"]);
/** After a kernel has ended, only turns in these states that were closed at most RECENT_S seconds ago are considered:
 * the end of the kernel may have ended them. The limit allows for different clocks of the server and the browser. */
const STOPPED = new Set(["cancelled", "interrupted"]);
const RECENT_S = 60;

export class MissedOutputs {
  readonly #ends = new Set<Close>();
  readonly #added: (tracker: INotebookTracker, panel: NotebookPanel) => void;
  #disposed = false;

  constructor(
    private readonly tracker: INotebookTracker,
    private readonly transport: Transport,
  ) {
    this.#added = (_, panel) => this.#add(panel);
    tracker.widgetAdded.connect(this.#added);
    tracker.forEach((panel) => this.#add(panel));
  }

  dispose(): void {
    this.#disposed = true;
    this.tracker.widgetAdded.disconnect(this.#added);
    for (const end of this.#ends) end();
    this.#ends.clear();
  }

  #add(panel: NotebookPanel): void {
    void this.#look(panel, async (last, session) => {
      const saved = Date.parse(panel.context.contentsModel?.last_modified ?? "") / 1_000;
      await this.#render(
        panel,
        last.filter((turn) => !turn.running && (turn.closed ?? 0) > saved),
      );
      const open = last.filter((turn) => turn.running && !isAttached(cellOf(panel, turn)));
      if (open.length > 0 && !panel.isDisposed) this.#await(panel, session, open);
    });
    panel.sessionContext.statusChanged.connect((_, status) => {
      if (ENDS.has(status)) setTimeout(() => void this.#endWithKernel(panel), OUTPUTS_COME_WITHIN_MS);
    });
  }

  /** Add the outputs of turns that ended with their kernel: the cell does not receive the end of the turn from it. */
  async #endWithKernel(panel: NotebookPanel): Promise<void> {
    if (panel.isDisposed || this.#disposed) return;
    await this.#look(panel, (last) =>
      this.#render(
        panel,
        last.filter(({ state, closed }) => STOPPED.has(state) && (closed ?? 0) > Date.now() / 1_000 - RECENT_S),
      ),
    );
  }

  async #look(panel: NotebookPanel, use: (last: StoredTurn[], session: string) => Promise<void>): Promise<void> {
    await panel.context.ready;
    try {
      const path = encodeURIComponent(panel.context.localPath);
      const { session } = await this.transport.request<Binding>("GET", `binding?path=${path}`);
      if (!session || this.#disposed) return;
      const query = `sessions/${session.id}/turns?limit=${LOOKED_AT}`;
      const { turns } = await this.transport.request<StoredTurns>("GET", query);
      await use(newest(turns), session.id);
    } catch (error) {
      ignoreApiError(error);
    }
  }

  /** Wait for turns that were running when the notebook was opened: this page does not receive the outputs of their
   * cells. */
  #await(panel: NotebookPanel, session: string, open: readonly StoredTurn[]): void {
    const left = new Map(open.map((turn) => [turn.turn, turn]));
    const close = this.transport.watch({ session }, (news) => {
      const turn = news.type === "turn.closed" ? left.get(news.turn) : undefined;
      if (!turn) return;
      left.delete(turn.turn);
      setTimeout(() => void this.#render(panel, [turn]).catch(ignoreApiError), OUTPUTS_COME_WITHIN_MS);
      if (left.size === 0) end();
    });
    const end = () => {
      close();
      this.#ends.delete(end);
    };
    this.#ends.add(end);
    panel.disposed.connect(end);
  }

  async #render(panel: NotebookPanel, turns: readonly StoredTurn[]): Promise<void> {
    const wanted = turns.filter((turn) => isOutputMissing(cellOf(panel, turn), turn));
    const found = await Promise.all(
      wanted.map((turn) =>
        this.transport.request<Outputs>("GET", `turns/${turn.turn}/outputs?session=${turn.session}`),
      ),
    );
    const notebook = panel.isDisposed || this.#disposed ? null : panel.content.model?.sharedModel;
    notebook?.transact(() => {
      wanted.forEach((turn, index) => {
        const cell = cellOf(panel, turn);
        const outputs = found[index]?.outputs as IOutput[] | undefined;
        if (outputs && isCode(cell) && isOutputMissing(cell, turn)) cell.model.sharedModel.setOutputs(outputs);
      });
    }, true);
  }
}

/** Ignore an ApiError, because the panel itself shows problems of the server. Any other error is thrown. */
function ignoreApiError(error: unknown): void {
  if (!isApiError(error)) throw error;
}

/** The last turn of each cell. */
export function newest(turns: readonly StoredTurn[]): StoredTurn[] {
  return [...new Map(turns.filter((turn) => turn.cell).map((turn) => [turn.cell, turn])).values()];
}

/** Whether the cell is unchanged since it started the turn and does not show the end of the turn. */
function isOutputMissing(cell: Cell | undefined, turn: StoredTurn): boolean {
  if (!isCode(cell) || isAttached(cell)) return false;
  const { sharedModel, metadata } = cell.model;
  return asks(sharedModel.getSource(), turn.prompt, metadata) && !showsTurnEnd(outputsOf(cell), turn.turn);
}

/** Whether the cell with this source asks this prompt. The prompt of a cell is its text without the options in its
 * first line; white space and the braces around names are ignored. */
export function asks(source: string, prompt: string, metadata?: unknown): boolean {
  const bare = (text: string) => text.replace(/[\s{}]/g, "");
  const text = promptOf(source, metadata) ?? (isMagicCell(source) ? source : null);
  return text !== null && prompt.trim() !== "" && bare(text).endsWith(bare(prompt));
}

export function showsTurnEnd(outputs: readonly IOutput[], turn: string): boolean {
  return outputs.some((output) => {
    const record = (output["data"] as Record<string, { turn?: string; state?: string }> | undefined)?.[TURN_MIME];
    return record?.turn === turn && record.state !== "open";
  });
}

function cellOf(panel: NotebookPanel, turn: StoredTurn): Cell | undefined {
  return panel.isDisposed ? undefined : panel.content.widgets.find((cell) => cell.model.id === turn.cell);
}

/** Whether the cell runs in this page, which then receives its outputs. */
function isAttached(cell: Cell | undefined): boolean {
  return isCode(cell) && cell.model.executionState === "running";
}
