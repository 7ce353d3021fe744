/** Draws the review of the agent's changes into the notebook: a card at each cell, marks at cells that the agent wrote,
 * and a bar. Everything is derived from the turns and the document, and is drawn again when either of them changes. */
import { computed, effect, signal, untracked, type ReadonlySignal } from "@preact/signals";
import { h, render, type ComponentChild } from "preact";
import type { Conversation } from "../conversation/conversation";
import { PanelContext, type PanelHost } from "../conversation/panelContext";
import type { ChangeKeeper, NotebookPlaces, WrittenCell } from "../notebook/notebook";
import { isUndone } from "../notebook/undo";
import { changesOf, isSuperseded, type Change } from "../turn/cellChanges";
import type { TurnView } from "../turn/turn";
import { AgentMark } from "./AgentMark";
import { CellReview } from "./CellReview";
import { observe, type Reviewing } from "./reviewing";
import { itemsOf, type ReviewItem } from "./items";
import { ReviewBar } from "./ReviewBar";
import "./review.css";

/** After the user presses a key in the notebook, the review does not scroll it for this long. */
const TYPING_MS = 3_000;
/** After scrolling to a card, its presence and the focus are checked every CHECK_MS: at most REACH_CHECKS times, until
 * the card was there in SETTLED_CHECKS of them. A notebook that draws only the cells in sight draws a cell some time
 * after it was scrolled to, and may take it out of the page once more, which takes the focus away; JupyterLab may move
 * the focus to the cell a moment later. */
const CHECK_MS = 50;
const REACH_CHECKS = 60;
const SETTLED_CHECKS = 6;

export class NotebookReviews implements Reviewing {
  readonly items: ReadonlySignal<readonly ReviewItem[]>;
  /** The turn that the bar shows: the newest turn that changed cells or proposes to, if it ran while this page was open
   * and its bar is not dismissed; otherwise the turn of the last item to review. Null if there is no such turn. */
  readonly turn: ReadonlySignal<TurnView | null>;
  readonly current = signal("");
  readonly #dismissed = signal<ReadonlySet<string>>(new Set());
  readonly #live = new Set<string>();
  /** The groups of items (`groupOf`) that are no longer new, so that the notebook is not scrolled to them again. */
  readonly #shown = new Set<string>();
  readonly #drawn = new Map<string, HTMLElement>();
  readonly #ends: (() => void)[];
  #bar: HTMLElement | null = null;
  /** Times by `performance.now()`: when the user last pressed a key or a pointer button, when the user last pressed a
   * key in a cell's editor, and when a card that had the focus disappeared. */
  #acted = 0;
  #typed = -Infinity;
  #left = -Infinity;

  constructor(
    private readonly conversation: Conversation,
    private readonly host: PanelHost,
    private readonly places: NotebookPlaces,
    readonly keeper: ChangeKeeper,
    private readonly openTurn: (turn: string) => void,
  ) {
    const turns = computed(() => this.#turns());
    this.items = computed(() => {
      observe(places.version, keeper.version);
      return itemsOf({
        turns: turns.value,
        keeper,
        corrections: conversation.corrections.proposed.value,
        cells: places.cells(),
        isLive: (turn) => this.#live.has(turn),
        dismissed: this.#dismissed.value,
      });
    });
    this.turn = computed(() => {
      const changed = turns.value.findLast((turn) => changesOf(turn).length > 0 || this.#isProposed(turn));
      if (!changed || this.#dismissed.value.has(changed.id)) return this.#pendingTurn();
      return this.#live.has(changed.id) ? changed : this.#pendingTurn();
    });
    const acted = ({ type, target }: Event) => {
      this.#acted = performance.now();
      const isInEditor = target instanceof Element && target.closest(".jp-Notebook .cm-editor") !== null;
      if (type === "keydown" && isInEditor) this.#typed = this.#acted;
    };
    for (const type of ["keydown", "pointerdown"]) document.addEventListener(type, acted, { capture: true });
    this.#ends = [
      () => {
        for (const type of ["keydown", "pointerdown"]) document.removeEventListener(type, acted, { capture: true });
      },
      effect(() => {
        for (const entry of conversation.running.value) this.#live.add(entry.id);
      }),
      effect(() => {
        observe(places.version);
        const { value: items } = this.items;
        const { value: turn } = this.turn;
        untracked(() => this.#draw(items, turn));
      }),
      effect(() => {
        const fresh = this.items.value.find((item) => !this.#shown.has(groupOf(item)));
        if (fresh) untracked(() => this.#arrived(fresh));
      }),
    ];
  }

  dispose(): void {
    for (const end of this.#ends) end();
    for (const key of [...this.#drawn.keys()]) this.#erase(key);
    this.#eraseBar();
  }

  get open(): readonly ReviewItem[] {
    return this.items.value.filter((item) => item.change && (item.do === "insert" || item.do === "edit"));
  }

  changedCells(turn: TurnView): number {
    const made = changesOf(turn).filter(
      (change) => !isSuperseded(turn, change) && !isUndone(this.keeper, turn, change) && this.#isInNotebook(change),
    );
    return new Set(made.map((change) => change.cell)).size;
  }

  dismiss(key: string): void {
    this.#dismissed.value = new Set([...this.#dismissed.value, key]);
  }

  async go(step: number): Promise<void> {
    const items = this.items.value;
    const here = items.findIndex((item) => item.key === this.current.value);
    const from = here < 0 && step < 0 ? 0 : here;
    const item = items[(from + step + items.length) % items.length];
    if (item) await this.#show(item, true);
    else this.#bar?.querySelector("button")?.focus(); // everything is reviewed: the bar still has the turn to undo
  }

  leave(item: ReviewItem): void {
    this.places.focus(item.cell);
  }

  edit(item: ReviewItem): void {
    this.places.focus(item.cell, "editor");
  }

  #turns(): readonly TurnView[] {
    const bound = this.conversation.binding.value?.session?.id;
    if (!bound || bound !== this.conversation.session.value?.id) return []; // a session of another notebook
    return this.conversation.entries.value.map((entry) => entry.view.value);
  }

  #pendingTurn(): TurnView | null {
    const turn = this.items.value.at(-1)?.turn;
    return this.#turns().find((one) => one.id === turn) ?? null;
  }

  #isProposed(turn: TurnView): boolean {
    return this.items.value.some((item) => item.turn === turn.id);
  }

  #isInNotebook(change: Change): boolean {
    const standing = this.keeper.standing(change);
    return standing !== "gone" && standing !== "closed";
  }

  /** Scroll the notebook to a new item: to each proposal, and to the first change of a turn. Items of turns that ended
   * before the page was loaded are not scrolled to. */
  #arrived(item: ReviewItem): void {
    this.#shown.add(groupOf(item));
    if (!this.#live.has(item.turn)) return;
    const waits = this.#left >= this.#acted && isInNotebook(document.activeElement); // the user has done nothing since
    if (waits) this.#left = -Infinity;
    if (performance.now() - this.#typed > TYPING_MS) void this.#show(item, waits);
  }

  async #show(item: ReviewItem, focuses: boolean): Promise<void> {
    this.current.value = item.key;
    const asked = performance.now();
    await this.places.scrollTo(item.cell);
    let settled = 0;
    for (let check = 0; check < REACH_CHECKS && settled < SETTLED_CHECKS; check++) {
      const card = this.#drawn.get(item.key)?.querySelector<HTMLElement>(".ak-cell-review");
      if (this.current.value !== item.key) return; // the user has gone elsewhere
      if (card && card.getClientRects().length > 0) {
        if (settled === 0) card.scrollIntoView({ block: "nearest" });
        const { activeElement } = document;
        const isLost = this.#acted <= asked && isInNotebook(activeElement) && !card.contains(activeElement);
        if (focuses && (settled === 0 || isLost)) card.focus({ preventScroll: true });
        settled++;
      }
      await new Promise((resolve) => setTimeout(resolve, CHECK_MS));
    }
  }

  #draw(items: readonly ReviewItem[], turn: TurnView | null): void {
    const wanted = new Set<string>();
    for (const item of items) {
      const element = this.places.at(item.key, item.cell, item.side);
      wanted.add(item.key);
      if (!element) continue;
      element.dataset["do"] = item.do;
      element.dataset["state"] = item.change ? "made" : "proposed";
      this.#render(item.key, element, h(CellReview, { item, reviews: this }));
    }
    for (const cell of this.places.written()) {
      const key = `mark ${cell.cell}`;
      const element = this.places.at(key, cell.cell, "margin");
      wanted.add(key);
      if (element) this.#render(key, element, this.#mark(cell));
    }
    for (const key of [...this.#drawn.keys()]) if (!wanted.has(key)) this.#erase(key);
    this.#drawBar(items.length > 0 || turn !== null ? turn : null);
  }

  #mark(cell: WrittenCell): ComponentChild {
    return h(AgentMark, { cell, onOpen: () => this.openTurn(cell.turn) });
  }

  #drawBar(turn: TurnView | null): void {
    const element = turn && this.places.bar();
    if (!element) {
      this.#eraseBar();
      return;
    }
    if (this.#bar && this.#bar !== element) render(null, this.#bar);
    this.#bar = element;
    render(this.#within(h(ReviewBar, { reviews: this, turn })), element);
  }

  #eraseBar(): void {
    if (this.#bar) render(null, this.#bar);
    this.#bar = null;
    this.places.removeBar();
  }

  #render(key: string, element: HTMLElement, content: ComponentChild): void {
    this.#drawn.set(key, element);
    render(this.#within(content), element);
  }

  /** Remove the element of an item or a mark. If the focus was inside, it moves to the cell of the element. */
  #erase(key: string): void {
    const element = this.#drawn.get(key);
    const hadFocus = element?.contains(document.activeElement) ?? false;
    const cell = element?.closest<HTMLElement>(".jp-Cell");
    if (element) render(null, element);
    this.#drawn.delete(key);
    this.places.remove(key);
    if (!hadFocus || !cell) return;
    cell.focus({ preventScroll: true });
    this.#left = performance.now();
  }

  #within(content: ComponentChild) {
    const value = { conversation: this.conversation, host: this.host };
    return h(PanelContext.Provider, { value, children: content });
  }
}

const groupOf = (item: ReviewItem): string => (item.approval ? item.key : item.turn);

/** Whether the notebook has the focus, or nothing in the page has it. */
const isInNotebook = (focused: Element | null): boolean =>
  !focused || focused === document.body || focused.closest(".jp-NotebookPanel") !== null;
