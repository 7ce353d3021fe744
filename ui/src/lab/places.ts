/** Places in JupyterLab's notebook where the panel draws: elements inside of the nodes of cells, and a bar below the
 * notebook. They are in the page only, never in the document. A cell keeps its node while it is scrolled out of sight
 * or drawn again; where a cell gets a new node, its elements are moved there. */
import type { Cell } from "@jupyterlab/cells";
import type { INotebookTracker, Notebook, NotebookPanel } from "@jupyterlab/notebook";
import { BoxLayout, Widget } from "@lumino/widgets";
import type { Signal } from "@preact/signals";
import type { CellSide, NotebookPlaces, WrittenCell } from "../notebook/notebook";
import { TAG } from "./edits";

const SETTLED_MS = 50;
/** Ids that are looked up. The metadata of a file may contain anything. */
const ID = /^[\w.-]{1,200}$/;
/** Events that the notebook must not see: it would move the focus, or run a shortcut. */
const OWN_EVENTS = ["mousedown", "dblclick", "keydown"];

export class LabPlaces implements NotebookPlaces {
  readonly version: Signal<number>;
  readonly #elements = new Map<string, HTMLElement>();
  #bar: Widget | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly tracker: INotebookTracker,
    signal: <Value>(value: Value) => Signal<Value>,
  ) {
    this.version = signal(0);
    const added = (_: unknown, panel: NotebookPanel) => {
      panel.content.modelContentChanged.connect(this.#changed);
      void panel.context.ready.then(this.#changed);
    };
    tracker.currentChanged.connect(this.#changed);
    tracker.widgetAdded.connect(added);
    tracker.forEach((panel) => added(tracker, panel));
  }

  cells(): readonly string[] {
    return this.#content?.widgets.map((widget) => widget.model.id) ?? [];
  }

  written(): readonly WrittenCell[] {
    return (this.#content?.widgets ?? []).flatMap(({ model }) => {
      const tag = model.getMetadata(TAG) as { turn?: unknown; made?: unknown } | undefined;
      const turn = typeof tag === "object" ? tag.turn : undefined;
      return typeof turn === "string" && ID.test(turn) ? [{ cell: model.id, turn, made: tag?.made === true }] : [];
    });
  }

  at(key: string, cell: string, side: CellSide): HTMLElement | null {
    const widget = this.#find(cell);
    if (!widget) return null;
    if (widget.isPlaceholder()) {
      void widget.ready.then(this.#changed);
      return null;
    }
    const element = this.#elements.get(key) ?? createElement(side);
    this.#elements.set(key, element);
    put(element, widget, side);
    return element;
  }

  remove(key: string): void {
    this.#elements.get(key)?.remove();
    this.#elements.delete(key);
  }

  bar(): HTMLElement | null {
    const panel = this.tracker.currentWidget;
    const layout = panel?.layout;
    if (!(layout instanceof BoxLayout)) return null;
    if (!this.#bar || this.#bar.isDisposed) {
      this.#bar = new Widget();
      this.#bar.addClass("ak-review-bar-place");
      this.#bar.node.dataset["lmSuppressShortcuts"] = "true";
      BoxLayout.setStretch(this.#bar, 0);
    }
    if (this.#bar.parent !== panel) layout.addWidget(this.#bar);
    return this.#bar.node;
  }

  removeBar(): void {
    if (this.#bar && !this.#bar.isDisposed) this.#bar.parent = null;
  }

  async scrollTo(cell: string): Promise<void> {
    const content = this.#content;
    const index = this.cells().indexOf(cell);
    if (content && index >= 0) await content.scrollToItem(index, "smart");
  }

  focus(cell: string, within?: "editor"): void {
    const content = this.#content;
    const widget = this.#find(cell);
    if (!content || !widget) return;
    content.activeCellIndex = content.widgets.indexOf(widget);
    content.mode = within ? "edit" : "command";
    if (within) widget.editor?.focus();
    else widget.node.focus({ preventScroll: true });
  }

  get #content(): Notebook | null {
    return this.tracker.currentWidget?.content ?? null;
  }

  #find(cell: string): Cell | undefined {
    return this.#content?.widgets.find((widget) => widget.model.id === cell);
  }

  readonly #changed = (): void => {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.version.value++;
    }, SETTLED_MS);
  };
}

function createElement(side: CellSide): HTMLElement {
  const element = document.createElement("div");
  element.className = `ak-at-cell ak-at-${side}`;
  element.dataset["lmSuppressShortcuts"] = "true";
  for (const type of OWN_EVENTS) element.addEventListener(type, (event) => event.stopPropagation());
  return element;
}

/** Move the element to its place, unless it is there: moving it would take the focus from what is inside. */
function put(element: HTMLElement, widget: Cell, side: CellSide): void {
  const wrapper = widget.inputArea?.node.parentElement;
  const parent = side === "margin" ? wrapper : widget.node;
  if (!parent || element.parentElement === parent) return;
  if (side === "above") parent.prepend(element);
  else if (side === "input" && wrapper) wrapper.after(element);
  else parent.append(element);
}
