/** The widget in JupyterLab's side bar that contains the panel. The panel is loaded after JupyterLab has started, so
 * that it does not delay the start. */
import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { IThemeManager } from "@jupyterlab/apputils";
import type { Cell } from "@jupyterlab/cells";
import type { IMermaidManager } from "@jupyterlab/mermaid";
import type { INotebookTracker, Notebook } from "@jupyterlab/notebook";
import type { ISettingRegistry } from "@jupyterlab/settingregistry";
import type { IStateDB } from "@jupyterlab/statedb";
import { Widget, type SplitPanel } from "@lumino/widgets";
import type { signal as makeSignal, Signal } from "@preact/signals";
import type { Draft } from "../conversation/conversation";
import type { Mounted } from "../panel";
import { type Translation, trans } from "../translation/translation";
import { showMissingServer, hasAgentServer } from "./missingServer";
import { MissedOutputs } from "./missedOutputs";
import { Claims } from "./clientCalls";
import { takeDraggedFiles } from "./draggedFiles";
import { agentIcon } from "./icon";
import { FixButtons } from "./fixButtons";
import { FirstHint } from "./hint";
import { LabNotebook } from "./notebook";
import { LabPreferences, SETTINGS } from "./preferences";
import { askInCell, PromptHighlighter } from "./promptCells";
import { fixDraft } from "./prompts";
import { SCRIPT_FOLDER } from "./scriptUrl";
import type { Reviewing } from "../review/reviewing";
import type { InlineCompletion } from "./inlineCompletion";
import type { Status } from "./status";
import type { DiagramLibrary, Drawing } from "../conversation/panelContext";

const WIDTH_PX = 380;
/** The notebook keeps at least this share of the width of the notebook and the side bar together. */
const REST = 0.4;

const WIDENED = "agent-kernel:widened";

declare const PANEL_FILE: string;
declare const STYLE_FILE: string;

export class Sidebar extends Widget {
  #mounted: Promise<Mounted | null> | null = null;
  #ends: (() => void)[] = [];
  status: Status | null = null;
  completion: InlineCompletion | null = null;
  /** JupyterLab's store of states, which has one for each workspace, beside the layout. */
  state: IStateDB | null = null;
  /** JupyterLab's services that draw diagrams; null if the application has no Mermaid. */
  drawing: { mermaid: IMermaidManager; themes: IThemeManager | null } | null = null;
  #notebook: LabNotebook | null = null;
  #reviews: Reviewing | null = null;
  #hint: FirstHint | null = null;

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly tracker: INotebookTracker,
    private readonly registry: ISettingRegistry | null = null,
    private readonly translation?: Translation,
  ) {
    super();
    this.id = "agent-kernel-panel";
    this.title.caption = trans.__("Agent");
    this.title.icon = agentIcon;
    this.title.dataset = { "aria-label": trans.__("Agent") };
    this.addClass("agent-kernel-side");
    takeDraggedFiles(
      this.node,
      () => this.tracker.currentWidget?.context.localPath.replace(/[^/]*$/, "") ?? "",
      (path) => this.app.serviceManager.contents.localPath(path),
    );
  }

  /** Show the side bar and focus the composer. */
  async reveal(): Promise<void> {
    this.app.shell.activateById(this.id);
    await this.start();
    this.#focus();
  }

  /** Close the side bar that the panel is in. */
  collapse(): void {
    const shell = this.app.shell as { collapseRight?: () => void };
    shell.collapseRight?.();
  }

  /** The first time that the panel is shown in a workspace, the side bar becomes as wide as the panel needs; afterwards
   * it stays as the user left it, which Lab stores with the layout of the workspace. Notebook 7 stores no layout and
   * begins narrower than the panel. */
  protected override onAfterShow(): void {
    this.#hint?.withdraw();
    // One frame later the side bar has the width that Lab gives it.
    requestAnimationFrame(() => void this.#widenOnce());
  }

  async #widenOnce(): Promise<void> {
    const isWidened = (await this.state?.fetch(WIDENED)) !== undefined;
    if (isWidened && !isCut(this)) return;
    if (widen(this)) await this.state?.save(WIDENED, true);
  }

  /** Focus the composer. Lumino also calls this when the user opens the side bar by its tab. */
  protected override onActivateRequest(): void {
    this.#focus();
  }

  async send(draft: Draft): Promise<void> {
    await this.reveal();
    await (await this.start())?.conversation.send(draft);
  }

  /** Correct a failed cell of the current notebook in its kernel. If the kernel cannot do that, send the agent a
   * message about the error. */
  async fix(notebook: Notebook, cell: Cell): Promise<void> {
    await this.reveal();
    const conversation = (await this.start())?.conversation;
    if (!conversation || (await conversation.corrections.ask(cell.model.id))) return;
    const draft = fixDraft(notebook, cell);
    if (draft) await conversation.send(draft);
  }

  /** Show the side bar and focus the first approval card. */
  async question(): Promise<void> {
    await this.reveal();
    this.node.querySelector<HTMLElement>(".ak-approval")?.focus();
  }

  /** Show the cell that waits for the user and focus its input. */
  cellQuestion(cell: string): void {
    const panel = this.tracker.currentWidget;
    if (panel) this.app.shell.activateById(panel.id);
    this.#notebook?.reveal(cell);
    panel?.content.widgets
      .find((widget) => widget.model.id === cell)
      ?.node.querySelector<HTMLElement>(".jp-Stdin-input")
      ?.focus();
  }

  /** Move the focus to the next change of a cell that waits for a review, or with -1 to the previous one. */
  async goToChange(step: 1 | -1): Promise<void> {
    await this.#reviews?.go(step);
  }

  /** Show the composer and add notes (hidden context such as a selection) that are sent with the next message. */
  async compose(notes: NonNullable<Draft["context"]>): Promise<void> {
    const conversation = (await this.start())?.conversation;
    if (conversation) conversation.notes.value = [...conversation.notes.value, ...notes];
    await this.reveal();
  }

  /** Stop the running turn. If that fails, the panel is shown, because it displays the reason. */
  async stop(): Promise<void> {
    const conversation = (await this.start())?.conversation;
    await conversation?.stop();
    if (conversation?.failure.value) await this.reveal();
  }

  /** Load the panel, if it is not loaded yet. An open page loads it even while the side bar is closed, because the page
   * runs tool calls for turns of its notebooks. */
  start(): Promise<Mounted | null> {
    return (this.#mounted ??= this.#mount().catch((error: unknown) => {
      this.#mounted = null; // so that the next call tries to load it again
      throw error;
    }));
  }

  override dispose(): void {
    for (const end of this.#ends.splice(0)) end();
    super.dispose();
  }

  async #mount(): Promise<Mounted | null> {
    this.#style();
    const { serverSettings } = this.app.serviceManager;
    if (!(await hasAgentServer(serverSettings))) {
      showMissingServer(this.node, () => {
        this.#mounted = null;
        void this.start();
      });
      return null;
    }
    const url = new URL(PANEL_FILE, SCRIPT_FOLDER).href;
    const { mount, reviewInNotebook, ServerTransport, signal } = (await import(url)) as typeof import("../panel");
    const { baseUrl, wsUrl, token, appendToken } = serverSettings;
    this.node.replaceChildren();
    const transport = new ServerTransport({ baseUrl, wsUrl, ...(appendToken ? { token } : {}) });
    const notebook = new LabNotebook(this.app, this.tracker, signal);
    this.#notebook = notebook;
    const preferences = await this.#preferences(signal);
    const { drawing, translation } = this;
    const diagrams = drawing && new LabDiagrams(drawing.mermaid, drawing.themes, signal);
    const host = {
      transport,
      notebook,
      show: () => this.app.shell.activateById(this.id),
      ...(preferences ? { preferences } : {}),
      ...(diagrams ? { diagrams } : {}),
      ...(translation ? { translation } : {}),
    };
    const mounted = mount(this.node, host);
    const reviews = reviewInNotebook(this.node, host, mounted.conversation);
    this.#reviews = reviews;
    const arrived = new MissedOutputs(this.tracker, transport);
    const claims = new Claims(this.tracker, transport);
    const buttons = new FixButtons(this.tracker, (content, cell) => this.fix(content, cell), askInCell);
    const highlighter = new PromptHighlighter(this.tracker);
    const hint = preferences && new FirstHint(this.tracker, () => preferences.claimHint(), this);
    this.#hint = hint;
    if (this.completion) this.completion.transport = transport;
    const unsaid = this.status?.follow(mounted.conversation, notebook.asking);
    const ends = [
      () => unsaid?.(),
      () => {
        if (this.completion) this.completion.transport = null;
      },
      () => {
        this.#reviews = null;
        reviews?.dispose();
      },
      () => arrived.dispose(),
      () => claims.dispose(),
      () => buttons.dispose(),
      () => hint?.dispose(),
      () => preferences?.dispose(),
      () => diagrams?.dispose(),
      () => highlighter.dispose(),
      () => mounted.unmount(),
      () => transport.close(),
    ];
    if (this.isDisposed) for (const end of ends) end();
    else this.#ends = ends;
    return mounted;
  }

  /** Load the settings. Null if the application has no settings, or if the server's schema of them is older than this
   * page. */
  async #preferences(signal: typeof makeSignal): Promise<LabPreferences | null> {
    try {
      const settings = await this.registry?.load(SETTINGS);
      return settings ? new LabPreferences(settings, this.app.commands, signal) : null;
    } catch (error) {
      console.warn("agent-kernel: the settings of the panel cannot be loaded; their defaults apply.", error);
      return null;
    }
  }

  #focus(): void {
    this.node.querySelector("textarea")?.focus();
  }

  #style(): void {
    const href = new URL(STYLE_FILE, SCRIPT_FOLDER).href;
    if ([...document.styleSheets].some((sheet) => sheet.href === href)) return;
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.href = href;
    document.head.append(style);
  }
}

/** Draws Mermaid diagrams with JupyterLab's own library, which it loads at the first diagram. */
class LabDiagrams implements DiagramLibrary {
  readonly theme: Signal<string>;

  /** `signal` is the function of the panel's bundle that makes signals: the panel would not react to signals of this
   * bundle. */
  constructor(
    private readonly mermaid: IMermaidManager,
    private readonly themes: IThemeManager | null,
    signal: typeof makeSignal,
  ) {
    this.theme = signal(themes?.theme ?? "");
    themes?.themeChanged.connect(this.#follow);
  }

  async draw(source: string): Promise<Drawing> {
    const { svg, accessibleTitle } = await this.mermaid.renderSvg(source);
    const background = getComputedStyle(document.body).getPropertyValue("--jp-layout-color1").trim();
    return { svg, title: accessibleTitle ?? "", background };
  }

  dispose(): void {
    this.themes?.themeChanged.disconnect(this.#follow);
  }

  readonly #follow = (): void => {
    this.theme.value = this.themes?.theme ?? "";
  };
}

/** Make the side bar of the widget WIDTH_PX wide if it is narrower. Returns whether its width could be read. */
function widen(widget: Widget): boolean {
  const found = splitOf(widget);
  if (!found) return false;
  const { split, at } = found;
  const total = split.node.offsetWidth;
  if (!total || widget.node.offsetWidth >= WIDTH_PX) return total > 0;
  const sizes = split.relativeSizes();
  const largest = sizes.indexOf(Math.max(...sizes.filter((_, index) => index !== at)));
  const both = (sizes[at] ?? 0) + (sizes[largest] ?? 0);
  const wanted = Math.min(WIDTH_PX / total, both * (1 - REST));
  split.setRelativeSizes(
    sizes.map((size, index) => (index === at ? wanted : index === largest ? both - wanted : size)),
  );
  return true;
}

/** Whether the side bar of the widget is narrower than the widget, whose edge is then cut off. */
function isCut(widget: Widget): boolean {
  const found = splitOf(widget);
  const side = found?.split.widgets[found.at];
  return side !== undefined && side.node.clientWidth < widget.node.clientWidth;
}

/** The split panel around the widget, and the index of the part that the widget is in. */
function splitOf(widget: Widget): { split: SplitPanel; at: number } | null {
  for (let inner = widget, outer = widget.parent; outer; inner = outer, outer = outer.parent) {
    if ("relativeSizes" in outer) {
      const split = outer as SplitPanel;
      return { split, at: split.widgets.indexOf(inner) };
    }
  }
  return null;
}
