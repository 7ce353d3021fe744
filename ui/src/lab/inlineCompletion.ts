/** Inline completion of code by the model of the server, through JupyterLab's completer, whose settings turn it on. The
 * request is cancelled as soon as the user types on or the kernel starts to compute. */
import { Notification } from "@jupyterlab/apputils";
import type {
  CompletionHandler,
  IInlineCompletionContext,
  IInlineCompletionList,
  IInlineCompletionProvider,
} from "@jupyterlab/completer";
import type { INotebookTracker, Notebook, NotebookPanel } from "@jupyterlab/notebook";
import { errorMessage, type Transport } from "../transport/transport";
import { trans } from "../translation/translation";
import type { InfillLine } from "../wire/bodyTypes";

const PAUSE_MS = 150;
const TIMEOUT_MS = 5_000;
const CONTEXT_CHARACTERS = 4_000;
/** The code of the cells above is cut at multiples of this many characters, as the server does. While the notebook
 * grows, most prompts then begin with the same text, which the model does not compute again. */
const STEP = 2_000;
const AFTER_CHARACTERS = 400;
const MAX_CHARACTERS = 20_000;
const PROMPT = /^\s*(%%|>)/;
const NOTHING: IInlineCompletionList = { items: [] };

interface Gap {
  prefix: string;
  suffix: string;
  context: string;
}

export class InlineCompletion implements IInlineCompletionProvider {
  readonly identifier = "agent-kernel";
  readonly name = trans.__("Agent");
  /** JupyterLab shows these in its settings of inline completion. */
  readonly schema = {
    default: { enabled: false, debouncerDelay: PAUSE_MS, timeout: TIMEOUT_MS, autoFillInMiddle: true },
  };
  /** Null until the panel is loaded. */
  transport: Transport | null = null;
  #last: Suggestion | null = null;
  readonly #reported = new Set<string>();

  constructor(private readonly tracker: INotebookTracker) {}

  /** Resolves with the first text of a completion; `stream` yields the rest. */
  async fetch(
    { text, offset }: CompletionHandler.IRequest,
    { widget }: IInlineCompletionContext,
  ): Promise<IInlineCompletionList> {
    if (!this.#last?.ended) this.#last?.stop.abort();
    const panel = this.tracker.currentWidget;
    const cell = panel?.content.activeCell;
    if (!panel || widget !== panel || cell?.model.type !== "code" || PROMPT.test(text) || isBusy(panel)) return NOTHING;
    const characters = Array.from(text); // JupyterLab counts code points
    const gap = {
      prefix: characters.slice(0, offset).join("").slice(-MAX_CHARACTERS),
      suffix: characters.slice(offset).join("").slice(0, AFTER_CHARACTERS),
      context: earlierCode(panel.content),
    };
    const rest = this.#last?.restAt(gap);
    if (rest) return { items: [{ insertText: rest }] };
    const suggestion = (this.#last = new Suggestion(gap));
    void this.#complete(suggestion, panel, cell.model.sharedModel.changed);
    await suggestion.changed();
    if (!suggestion.text) return NOTHING;
    return { items: [{ insertText: suggestion.text, isIncomplete: !suggestion.ended, token: suggestion.token }] };
  }

  async *stream(token: string): AsyncGenerator<{ response: { insertText: string } }> {
    const suggestion = this.#last;
    if (suggestion?.token !== token) return;
    for (;;) {
      const { ended, text } = suggestion;
      yield { response: { insertText: text } };
      if (ended) return;
      await suggestion.changed();
    }
  }

  /** Request the completion and add its text to `suggestion` as it arrives. `changed` is the signal of the cell's
   * changes; a change cancels the request. */
  async #complete(suggestion: Suggestion, panel: NotebookPanel, changed: Changed): Promise<void> {
    const kernel = panel.sessionContext.session?.kernel;
    const stop = () => suggestion.stop.abort();
    const stopIfBusy = () => {
      if (isBusy(panel)) stop();
    };
    changed.connect(stop);
    panel.content.activeCellChanged.connect(stop);
    kernel?.statusChanged.connect(stopIfBusy);
    const {
      gap,
      stop: { signal },
    } = suggestion;
    try {
      await this.transport?.lines?.("infill", gap, (line) => this.#read(line as InfillLine, suggestion), signal);
    } catch (error) {
      if (!signal.aborted) this.#warn(errorMessage(error));
    } finally {
      changed.disconnect(stop);
      panel.content.activeCellChanged.disconnect(stop);
      kernel?.statusChanged.disconnect(stopIfBusy);
      suggestion.end();
    }
  }

  #read({ text, silence, error }: InfillLine, suggestion: Suggestion): void {
    if (error) this.#warn(error.message);
    else if (silence) this.#explain(silence);
    else if (!suggestion.stop.signal.aborted) suggestion.grow(text);
  }

  /** Show the user why there is no completion, once for each reason. Nothing is shown if the model is busy with a
   * turn. */
  #explain(silence: InfillLine["silence"]): void {
    if (silence === "busy" || this.#reported.has(silence)) return;
    this.#reported.add(silence);
    const reason =
      silence === "unloaded"
        ? trans.__("The agent completes code after your first question, which loads its model.")
        : trans.__("The agent's model cannot complete code. Qwen2.5-Coder on this machine can.");
    Notification.info(reason, { autoClose: 8_000 });
  }

  #warn(reason: string): void {
    if (this.#reported.has(reason)) return;
    this.#reported.add(reason);
    console.warn(`agent-kernel: the code cannot be completed. ${reason}`);
  }
}

interface Changed {
  connect(slot: () => void): unknown;
  disconnect(slot: () => void): unknown;
}

/** The completion that one request returns, while its text arrives. */
class Suggestion {
  static #count = 0;
  readonly token = String(++Suggestion.#count);
  readonly stop = new AbortController();
  text = "";
  ended = false;
  #wake: (() => void)[] = [];

  constructor(readonly gap: Gap) {}

  /** The part of this completion that the user has not typed yet; empty if the user has typed something else. */
  restAt({ prefix, suffix, context }: Gap): string {
    const { gap, text } = this;
    const isSame = suffix === gap.suffix && context === gap.context && prefix.startsWith(gap.prefix);
    if (!isSame || this.stop.signal.aborted || !(gap.prefix + text).startsWith(prefix)) return "";
    return text.slice(prefix.length - gap.prefix.length);
  }

  grow(text: string): void {
    this.text = text;
    if (text) this.#wakeAll();
  }

  end(): void {
    this.ended = true;
    this.#wakeAll();
  }

  /** Resolves when there is more text, or when there will be none. */
  async changed(): Promise<void> {
    if (!this.ended) await new Promise<void>((resolve) => this.#wake.push(resolve));
  }

  #wakeAll(): void {
    for (const wake of this.#wake.splice(0)) wake();
  }
}

function isBusy(panel: NotebookPanel): boolean {
  return panel.sessionContext.session?.kernel?.status === "busy";
}

/** The code of the cells above the active cell; of long code only the end, at most CONTEXT_CHARACTERS. */
function earlierCode(notebook: Notebook): string {
  const sources = notebook.widgets
    .slice(0, notebook.activeCellIndex)
    .map(({ model }) => (model.type === "code" ? model.sharedModel.getSource() : ""))
    .filter((source) => source && !PROMPT.test(source));
  const code = sources.join("\n\n");
  return code.slice(Math.max(0, Math.ceil((code.length - CONTEXT_CHARACTERS) / STEP) * STEP)).trimEnd();
}
