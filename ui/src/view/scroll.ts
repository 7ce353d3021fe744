/** Where the conversation stands in its window: at its end, and then it stays there while it grows; or where somebody
 * reads, and then it does not move, whatever comes above or below. */
import { signal } from "@preact/signals";

/** Pixels from the end that still count as the end. */
const NEAR = 40;

export class Scroll {
  /** There is something below that came while somebody read above. */
  readonly below = signal(false);
  #window: HTMLElement | null = null;
  #atEnd = true;
  #top = 0;
  /** How much was below when it was last looked at. */
  #under = 0;
  #held: { element: Element; top: number } | null = null;
  #sizes: ResizeObserver | null = null;

  /** Both at once: the window that scrolls, and what is in it. */
  attach(window: HTMLElement, content: HTMLElement): () => void {
    this.#window = window;
    const scrolled = () => {
      // Only who goes up leaves the end: it also gets out of reach when much comes at once.
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

  /** The conversation is as long as it is now. */
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

  /** Something comes above: what is seen first now is put back to its place by `release`. */
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
