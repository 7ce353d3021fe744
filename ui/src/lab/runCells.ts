/** Runs cells for the agent as a user would, one after the other, in the notebook's own kernel. A stop interrupts only
 * code that was started here, never the user's own. */
import { NotebookActions, type NotebookPanel } from "@jupyterlab/notebook";
import type { CodeCell } from "@jupyterlab/cells";
import type { KernelMessage } from "@jupyterlab/services";
import type { Medium } from "../wire/events";
import type { Facts } from "../wire/schema";
import { describeCell, joinLines, pictures } from "./notebookSnapshot";
import { isCode } from "./outputs";

export interface Answer {
  status: "success" | "error" | "interrupted";
  text: string;
  details?: Facts;
  media?: Medium[];
}

interface RunOptions {
  /** Aborted when the turn has ended, for example because the user stopped it. */
  stop: AbortSignal;
  output: (text: string) => void;
}

interface CellToRun {
  cell: string;
  source: string;
}

const isStopped = (telling: RunOptions): boolean => telling.stop.aborted;

type Kernel = NonNullable<NonNullable<NotebookPanel["sessionContext"]["session"]>["kernel"]>;

export async function runCells(
  panel: NotebookPanel,
  wanted: readonly CellToRun[],
  telling: RunOptions,
): Promise<Answer> {
  const ran: CodeCell[] = [];
  const left = () => ran.filter((cell) => !cell.isDisposed);
  const answer = (status: Answer["status"], text: string): Answer => ({
    status,
    text,
    details: { cells: left().map((cell) => ({ ...describeCell(cell), index: panel.content.widgets.indexOf(cell) })) },
    media: pictures(left().flatMap((cell) => cell.model.sharedModel.getOutputs())),
  });
  for (const { cell: id, source } of wanted) {
    const kernel = panel.sessionContext.session?.kernel;
    if (!kernel) return answer("error", "The notebook has no kernel (any more).");
    await untilIdle(kernel, telling.stop);
    if (isStopped(telling)) return answer("interrupted", "stopped");
    const cell = panel.isDisposed ? undefined : panel.content.widgets.find((widget) => widget.model.id === id);
    if (!isCode(cell)) return answer("error", `Cell ${id} is gone; nothing more ran.`);
    if (cell.model.sharedModel.getSource() !== source) {
      return answer("error", `Cell ${id} was changed meanwhile, so it did not run, and none after it.`);
    }
    if (panel.sessionContext.pendingInput) {
      return answer("error", "The kernel waits for an input of the person; nothing more ran.");
    }
    ran.push(cell);
    if (!(await run(panel, cell, kernel, telling))) {
      const index = panel.content.widgets.indexOf(cell);
      if (isStopped(telling)) return answer("interrupted", "stopped");
      return answer("error", `Cell ${index} (${id}) failed${ran.length < wanted.length ? "; none after it ran" : ""}.`);
    }
  }
  return answer("success", "");
}

async function run(panel: NotebookPanel, cell: CodeCell, kernel: Kernel, telling: RunOptions): Promise<boolean> {
  const { content } = panel;
  const { mode } = content;
  const focused = document.activeElement;
  const running = NotebookActions.runCells(content, [cell], panel.sessionContext);
  content.mode = mode;
  if (focused instanceof HTMLElement && document.activeElement !== focused) focused.focus();
  const stream = new Stream(cell, telling.output);
  const { future } = cell.outputArea as { future?: { msg: KernelMessage.IMessage } }; // absent if a plugin runs cells
  const stopper = new Stopper(kernel, future?.msg.header.msg_id ?? "", telling.stop);
  try {
    return await running;
  } finally {
    stopper.dispose();
    stream.dispose();
  }
}

/** Interrupts the kernel when the turn is stopped, but not before the code of the cell runs there. */
class Stopper {
  #began = false;
  readonly #hear = (_: unknown, message: KernelMessage.IIOPubMessage): void => {
    const parent = message.parent_header as { msg_id?: string };
    if (parent.msg_id !== this.message || this.#began) return;
    this.#began = true;
    if (this.stop.aborted) this.#interrupt();
  };
  readonly #interrupt = (): void => {
    if (this.#began) void this.kernel.interrupt();
  };

  constructor(
    private readonly kernel: Kernel,
    private readonly message: string,
    private readonly stop: AbortSignal,
  ) {
    kernel.iopubMessage.connect(this.#hear);
    stop.addEventListener("abort", this.#interrupt);
  }

  dispose(): void {
    this.kernel.iopubMessage.disconnect(this.#hear);
    this.stop.removeEventListener("abort", this.#interrupt);
  }
}

const TELL_EVERY_MS = 500;

/** Sends the text that the cell prints to `output` while the cell runs. */
class Stream {
  #told = "";
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #changed = (): void => {
    this.#timer ??= setTimeout(() => this.#tell(), TELL_EVERY_MS);
  };

  constructor(
    private readonly cell: CodeCell,
    private readonly output: RunOptions["output"],
  ) {
    cell.model.outputs.changed.connect(this.#changed);
  }

  dispose(): void {
    clearTimeout(this.#timer);
    if (!this.cell.isDisposed) this.cell.model.outputs.changed.disconnect(this.#changed);
  }

  /** Send the text that was printed since the last call. Output that was rewritten, such as a progress bar, is not
   * sent. */
  #tell(): void {
    this.#timer = undefined;
    if (this.cell.isDisposed) return;
    const outputs = this.cell.model.sharedModel.getOutputs();
    const printed = outputs
      .filter((output) => output.output_type === "stream")
      .map((output) => joinLines(output["text"]))
      .join("");
    if (printed.startsWith(this.#told) && printed.length > this.#told.length) {
      this.output(printed.slice(this.#told.length));
      this.#told = printed;
    }
  }
}

/** Resolves when the kernel is idle, or when the turn is stopped. */
async function untilIdle(kernel: Kernel, stop: AbortSignal): Promise<void> {
  const free = () => kernel.status === "idle" || kernel.isDisposed || kernel.status === "dead" || stop.aborted;
  if (free()) return;
  await new Promise<void>((resolve) => {
    const look = () => {
      if (!free()) return;
      kernel.statusChanged.disconnect(look);
      stop.removeEventListener("abort", look);
      resolve();
    };
    kernel.statusChanged.connect(look);
    stop.addEventListener("abort", look);
  });
}
