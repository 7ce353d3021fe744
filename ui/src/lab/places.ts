/** Places in JupyterLab's notebook where the panel draws: elements inside of the nodes of cells, and a bar below the
 * notebook. They are in the page only, never in the document. JupyterLab keeps the node of a cell while the cell is
 * scrolled out of sight or drawn again; if it makes a new node, the elements are moved there. */
import type { Cell } from "@jupyterlab/cells";
import type { INotebookTracker, Notebook } from "@jupyterlab/notebook";
import { BoxLayout, Widget } from "@lumino/widgets";
import type { Signal } from "@preact/signals";
import type { CellSide, NotebookPlaces, WrittenCell } from "../notebook/notebook";
import { countChanges } from "./changes";
import { TAG } from "./edits";

const SETTLED_MS = 50;
/** The form of ids that are accepted from the metadata of cells, because the metadata of a file may contain
 * anything. */
const ID = /^[\w.-]{1,200}$/;
/** Lumino runs no shortcut for a key that is pressed within an element with this attribute. */
const SUPPRESS = "data-lm-suppress-shortcuts";
const OWN = ".ak-at-cell, .ak-review-bar-place";
/** Events at these elements that must not reach the notebook, which would move the focus or run a shortcut. */
const OWN_EVENTS = ["mousedown", "dblclick", "keydown"];

export class LabPlaces implements NotebookPlaces {
  readonly version: Signal<number>;
  readonly #elements = new Map<string, HTMLElement>();
  #bar: Widget | null = null;
  readonly #changed: () => void;

  constructor(
    private readonly tracker: INotebookTracker,
    signal: <Value>(value: Value) => Signal<Value>,
  ) {
    this.version = signal(0);
    this.#changed = countChanges(tracker, this.version, SETTLED_MS);
    tracker.currentChanged.connect(this.#changed);
    window.addEventListener("keydown", filterShortcuts, { capture: true }); // before Lumino, which listens at the document
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
    // JupyterLab may not have made the parts of a cell that is out of sight, so look again when the cell comes into
    // sight. Connecting the same slot twice has no effect.
    widget.inViewportChanged.connect(this.#changed);
    if (widget.isPlaceholder()) void widget.ready.then(this.#changed);
    const wrapper = widget.inputArea?.node.parentElement;
    if (wrapper?.parentElement !== widget.node) return null;
    const element = this.#elements.get(key) ?? createElement(side);
    this.#elements.set(key, element);
    put(element, widget.node, wrapper, side);
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
}

/** Whether JupyterLab may handle a key that is pressed within a review: function keys, the shortcut that saves, and,
 * outside of a text field, other shortcuts with Ctrl or Cmd. All other keys are for the review itself. */
function isForLab({ target, key, ctrlKey, metaKey }: KeyboardEvent): boolean {
  const isField = target instanceof HTMLTextAreaElement;
  if (/^F\d+$/.test(key)) return true;
  return (ctrlKey || metaKey) && (key.toLowerCase() === "s" || (key !== "Enter" && !isField));
}

/** Mark the review that the event comes from, so that Lumino ignores a key that is for the review. Lumino listens at
 * the document in the capture phase or in the bubbling phase; in the capture phase only this attribute stops it. */
function filterShortcuts(event: KeyboardEvent): void {
  const own = event.target instanceof Element ? event.target.closest(OWN) : null;
  if (own && isForLab(event)) own.removeAttribute(SUPPRESS);
  else own?.setAttribute(SUPPRESS, "true");
}

/** For each element, the node inside it that has the focus. It is remembered when the element is taken out of the page
 * with its cell. */
const focused = new WeakMap<HTMLElement, HTMLElement>();

function createElement(side: CellSide): HTMLElement {
  const element = document.createElement("div");
  element.className = `ak-at-cell ak-at-${side}`;
  for (const type of OWN_EVENTS) {
    element.addEventListener(type, (event) => {
      if (!(event instanceof KeyboardEvent && isForLab(event))) event.stopPropagation();
    });
  }
  element.addEventListener("focusin", ({ target }) => {
    if (target instanceof HTMLElement) focused.set(element, target);
  });
  element.addEventListener("focusout", ({ relatedTarget }) => {
    if (relatedTarget) focused.delete(element);
    else setTimeout(() => element.isConnected && focused.delete(element)); // not connected: its cell is gone
  });
  return element;
}

/** Move the element to its place at the cell. An element that is there already is not moved, because moving it would
 * take the focus from what is inside. `wrapper` contains the input of the cell. */
function put(element: HTMLElement, cell: HTMLElement, wrapper: HTMLElement, side: CellSide): void {
  const parent = side === "margin" ? wrapper : cell;
  if (element.parentElement === parent && (side !== "input" || isBehind(element, wrapper))) return;
  const within = focused.get(element);
  if (side === "above") cell.prepend(element);
  else if (side === "input") wrapper.after(element);
  else parent.append(element);
  if (document.activeElement === document.body) within?.focus({ preventScroll: true });
}

/** Whether the element follows `wrapper`, with nothing but other elements of agent-kernel between them. */
function isBehind(element: Element, wrapper: Element): boolean {
  let before = element.previousElementSibling;
  while (before?.classList.contains("ak-at-cell")) before = before.previousElementSibling;
  return before === wrapper;
}
