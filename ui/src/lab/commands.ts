/** Commands of the notebook: show the panel, stop, explain, fix, ask about the selection. All are in the palette; those
 * about a cell are also in the context menu of cells and outputs. schema/panel.json puts the panel into the toolbar of
 * notebooks and into the View menu. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { ICommandPalette } from "@jupyterlab/apputils";
import type { Cell } from "@jupyterlab/cells";
import type { ILauncher } from "@jupyterlab/launcher";
import { NotebookActions, type INotebookTracker, type Notebook } from "@jupyterlab/notebook";
import type { ReadonlyPartialJSONObject } from "@lumino/coreutils";
import type { Draft } from "../conversation/conversation";
import { agentIcon, agentIconUrl, explainIcon, fixIcon } from "./icon";
import { explainDraft, cellOfLastError, selectionNote } from "./prompts";
import { hasError, isCode, outputsOf } from "./outputs";
import { isPrompt, runsPrompts, switchToAsk } from "./promptCells";
import type { Sidebar } from "./sidebar";
import { trans } from "../translation/translation";

export const SHOW = "agent-kernel:show";
const TOGGLE = "agent-kernel:toggle";
const NEW = "agent-kernel:new-notebook";
const BACK = "agent-kernel:back-to-notebook";
const STOP = "agent-kernel:stop";
const NEXT_CHANGE = "agent-kernel:next-change";
const PREVIOUS_CHANGE = "agent-kernel:previous-change";
const EXPLAIN = "agent-kernel:explain";
const FIX = "agent-kernel:fix";
const FIX_LAST = "agent-kernel:fix-last-error";
const ASK = "agent-kernel:ask-about-selection";
const ASK_IN_CELL = "agent-kernel:ask-in-cell";

const SHOW_KEYS = "Accel Shift L";
const CELL = ".jp-Notebook .jp-Cell";
const BEHIND_OWN_ITEMS = 100;
const AFTER_KERNELS = 1000;

/** The cell that a command works on: the cell whose context menu is open, otherwise the active cell. */
interface Chosen {
  notebook: Notebook;
  cell: Cell;
}

export class Commands {
  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly tracker: INotebookTracker,
    private readonly side: Sidebar,
  ) {}

  register(palette: ICommandPalette | null, launcher: ILauncher | null): void {
    const { commands } = this.app;
    // The palette searches labels only, and people who look for the agent type "ai", "chat" or "assistant".
    commands.addCommand(SHOW, {
      label: trans.__("Agent: Show the AI Chat Assistant"),
      execute: () => this.side.reveal(),
    });
    commands.addCommand(TOGGLE, {
      label: trans.__("Agent"),
      isToggled: () => this.side.isVisible,
      execute: () => (this.side.isVisible ? this.side.collapse() : this.side.reveal()),
    });
    commands.addCommand(NEW, {
      label: (args) =>
        args.isPalette ? trans.__("Agent: New Notebook with the Panel") : trans.__("Notebook with agent panel"),
      caption: trans.__("Create a notebook with the default kernel, and show the agent's panel beside it"),
      icon: agentIcon,
      execute: (args) => this.#create(args),
    });
    commands.addCommand(BACK, { label: trans.__("Agent: Back to the Notebook"), execute: () => this.#back() });
    commands.addCommand(STOP, { label: trans.__("Agent: Stop"), execute: () => this.side.stop() });
    commands.addCommand(NEXT_CHANGE, {
      label: trans.__("Agent: Next Change"),
      execute: () => this.side.goToChange(1),
    });
    commands.addCommand(PREVIOUS_CHANGE, {
      label: trans.__("Agent: Previous Change"),
      execute: () => this.side.goToChange(-1),
    });
    commands.addCommand(EXPLAIN, {
      label: trans.__("Agent: Explain"),
      icon: (args) => (args.toolbar ? explainIcon : undefined),
      isEnabled: () => this.#notebook !== null,
      execute: (args) => this.#ask(this.#chosen(args), explainDraft),
    });
    commands.addCommand(FIX, {
      label: trans.__("Agent: Fix"),
      icon: (args) => (args.toolbar ? fixIcon : undefined),
      isVisible: (args) => hasError(outputs(this.#chosen(args))),
      execute: (args) => this.#fix(this.#chosen(args)),
    });
    commands.addCommand(FIX_LAST, {
      label: trans.__("Agent: Fix the Last Error"),
      isEnabled: () => this.#lastError() !== null,
      execute: () => this.#fix(this.#lastError()),
    });
    commands.addCommand(ASK, {
      label: trans.__("Agent: Ask about the Selection"),
      isEnabled: () => this.#notebook !== null,
      execute: () => this.#about(),
    });
    commands.addCommand(ASK_IN_CELL, {
      label: trans.__("Agent: Make the Cell a Prompt or Code"),
      icon: (args) => (args.toolbar ? agentIcon : undefined),
      isVisible: () => runsPrompts(this.tracker.currentWidget) && isCode(this.#notebook?.activeCell),
      isToggled: () => this.#isPrompt(),
      execute: () => this.#switchToAsk(),
    });
    this.#refresh();
    this.#keys();
    this.#menus();
    for (const command of [SHOW, BACK, STOP, NEXT_CHANGE, PREVIOUS_CHANGE, EXPLAIN, FIX_LAST, ASK, ASK_IN_CELL])
      palette?.addItem({ command, category: trans.__("Agent") });
    palette?.addItem({ command: NEW, category: trans.__("Agent"), args: { isPalette: true } });
    launcher?.add({ command: NEW, category: "Notebook", rank: AFTER_KERNELS, kernelIconUrl: agentIconUrl });
  }

  /** JupyterLab draws the buttons of the cell toolbar again only if it is notified that the state of their command has
   * changed: notify it when a cell has run and when another cell becomes active. */
  #refresh(): void {
    const changed = () => {
      for (const id of [ASK_IN_CELL, FIX]) this.app.commands.notifyCommandChanged(id);
    };
    NotebookActions.executed.connect(changed);
    this.tracker.activeCellChanged.connect(changed);
  }

  #isPrompt(): boolean {
    const cell = this.#notebook?.activeCell;
    return cell !== null && cell !== undefined && isPrompt(cell);
  }

  #switchToAsk(): void {
    const cell = this.#notebook?.activeCell;
    if (!isCode(cell)) return;
    switchToAsk(cell, !isPrompt(cell));
    this.app.commands.notifyCommandChanged(ASK_IN_CELL);
  }

  /** Bind the shortcut that shows the panel, in notebooks and in the panel; elsewhere JupyterLab uses the same keys for
   * its launcher. Text editors bind these keys too, so the event is caught before it reaches an editor. */
  #keys(): void {
    const { commands } = this.app;
    for (const selector of [".jp-NotebookPanel", ".agent-kernel-side"]) {
      commands.addKeyBinding({ command: SHOW, keys: [SHOW_KEYS], selector });
    }
    document.addEventListener(
      "keydown",
      (event) => {
        const inEditor = event.target instanceof Element && event.target.closest(".cm-editor") !== null;
        const asked = event.shiftKey && (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "l";
        const bound = () =>
          commands.keyBindings.some((one) => one.command === SHOW && /^(Ctrl|Cmd) Shift L$/.test(one.keys[0] ?? ""));
        if (!inEditor || !asked || !bound()) return;
        event.preventDefault();
        event.stopPropagation();
        void commands.execute(SHOW);
      },
      { capture: true },
    );
  }

  #menus(): void {
    const { contextMenu } = this.app;
    for (const command of [EXPLAIN, FIX]) {
      contextMenu.addItem({ command, selector: CELL, rank: BEHIND_OWN_ITEMS, args: { from: "menu" } });
    }
  }

  get #notebook(): Notebook | null {
    return this.tracker.currentWidget?.content ?? null;
  }

  #chosen(args: { from?: unknown }): Chosen | null {
    const notebook = this.#notebook;
    if (!notebook) return null;
    const node = args.from === "menu" ? this.app.contextMenuHitTest((one) => one.classList.contains("jp-Cell")) : null;
    const cell = notebook.widgets.find((widget) => widget.node === node) ?? notebook.activeCell;
    return cell && { notebook, cell };
  }

  #lastError(): Chosen | null {
    const notebook = this.#notebook;
    const cell = notebook && cellOfLastError(notebook);
    return notebook && cell && { notebook, cell };
  }

  async #ask(chosen: Chosen | null, about: (notebook: Notebook, cell: Cell) => Draft | null): Promise<void> {
    const draft = chosen && about(chosen.notebook, chosen.cell);
    if (draft) await this.side.send(draft);
  }

  async #fix(chosen: Chosen | null): Promise<void> {
    if (chosen) await this.side.fix(chosen.notebook, chosen.cell);
  }

  async #about(): Promise<void> {
    const notebook = this.#notebook;
    if (!notebook) return;
    const text = selectedText(notebook);
    const number = notebook.activeCellIndex;
    await this.side.compose(text ? [selectionNote(text, `cell ${number}`)] : []);
  }

  /** Create a notebook with the default kernel in the folder `args.cwd`, which is that of the file browser, and show
   * the panel. */
  async #create(args: ReadonlyPartialJSONObject): Promise<void> {
    const kernelName = this.app.serviceManager.kernelspecs.specs?.default ?? "python3";
    const cwd = args.cwd === undefined ? {} : { cwd: args.cwd };
    await this.app.commands.execute("notebook:create-new", { kernelName, ...cwd });
    await this.side.reveal();
  }

  #back(): void {
    const panel = this.tracker.currentWidget;
    if (!panel) return;
    this.app.shell.activateById(panel.id);
    panel.content.activate();
  }
}

function outputs(chosen: Chosen | null) {
  return chosen ? outputsOf(chosen.cell) : [];
}

/** The text that is selected in the editor of the active cell; if there is none, the text that is selected elsewhere in
 * the page, such as in an output. */
function selectedText(notebook: Notebook): string {
  const editor = notebook.activeCell?.editor;
  const range = editor?.getSelection();
  const source = editor?.model.sharedModel.getSource() ?? "";
  const marked = editor && range ? source.slice(editor.getOffsetAt(range.start), editor.getOffsetAt(range.end)) : "";
  return marked || (document.getSelection()?.toString() ?? "");
}
