/** Scrolling of the conversation: at the end it follows new content; elsewhere the visible part does not move, whatever
 * is added above or below. */
import { signal } from "@preact/signals";

/** Distance from the end, in pixels, that still counts as the end. */
const NEAR = 40;

export class Scroll {
  /** Whether content was added below the visible part while the user reads there. */
  readonly below = signal(false);
  #window: HTMLElement | null = null;
  #atEnd = true;
  #top = 0;
  /** Distance to the end at the last check, in pixels. */
  #under = 0;
  #held: { element: Element; top: number } | null = null;
  #sizes: ResizeObserver | null = null;

  /** `window` is the element that scrolls, `content` the one inside it. */
  attach(window: HTMLElement, content: HTMLElement): () => void {
    this.#window = window;
    const scrolled = () => {
      // Only scrolling up leaves the end. Much new content at once also increases the distance, but is followed.
      if (distance(window) <= NEAR) this.#atEnd = true;
      else if (window.scrollTop < this.#top) this.#atEnd = false;
      if (this.#atEnd) this.below.value = false;
      this.#top = window.scrollTop;
      this.#under = distance(window);
    };
    window.addEventListener("scroll", scrolled, { passive: true });
    this.#sizes = new ResizeObserver(() => this.settle());
    this.#sizes.observe(content);
    this.#sizes.observe(window);
    this.settle();
    return () => {
      window.removeEventListener("scroll", scrolled);
      this.#sizes?.disconnect();
      this.#window = null;
    };
  }

  /** Adjust the position after the content changed its size. */
  settle(): void {
    const window = this.#window;
    if (!window || window.clientHeight === 0) return;
    if (this.#atEnd) this.#move(window, window.scrollHeight);
    else if (distance(window) > Math.max(NEAR, this.#under)) this.below.value = true;
  }

  toEnd(): void {
    this.#atEnd = true;
    this.below.value = false;
    this.settle();
  }

  /** Call this before content is added above; `release` restores the position of the first visible turn. */
  hold(): void {
    const window = this.#window;
    if (!window || this.#atEnd) return;
    const edge = window.getBoundingClientRect().top;
    const first = [...window.querySelectorAll(".ak-turn")].find((turn) => turn.getBoundingClientRect().bottom > edge);
    this.#held = first ? { element: first, top: first.getBoundingClientRect().top } : null;
  }

  release(): void {
    const held = this.#held;
    this.#held = null;
    const window = this.#window;
    if (!held?.element.isConnected || !window) return;
    this.#move(window, window.scrollTop + held.element.getBoundingClientRect().top - held.top);
  }

  #move(window: HTMLElement, top: number): void {
    window.scrollTop = top;
    this.#top = window.scrollTop;
    this.#under = distance(window);
  }
}

const distance = ({ scrollHeight, scrollTop, clientHeight }: HTMLElement): number =>
  scrollHeight - scrollTop - clientHeight;
