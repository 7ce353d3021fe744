import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Scroll } from "../../src/view/scroll";

/** A window of 100 pixels on content of some height, with the layout that jsdom does not do. */
class Window {
  readonly element = document.createElement("div");
  height = 500;
  #top = 0;

  constructor() {
    Object.defineProperties(this.element, {
      clientHeight: { get: () => 100 },
      scrollHeight: { get: () => this.height },
      scrollTop: {
        get: () => this.#top,
        set: (top: number) => (this.#top = Math.max(0, Math.min(top, this.height - 100))),
      },
    });
  }

  scrollTo(top: number): void {
    this.element.scrollTop = top;
    this.element.dispatchEvent(new Event("scroll"));
  }
}

let grown: () => void = () => undefined;
let page: Window;
let scroll: Scroll;
beforeEach(() => {
  class Sizes {
    constructor(told: () => void) {
      grown = told;
    }
    observe(): void {}
    disconnect(): void {}
  }
  vi.stubGlobal("ResizeObserver", Sizes);
  page = new Window();
  scroll = new Scroll();
  scroll.attach(page.element, document.createElement("div"));
});
afterEach(() => vi.unstubAllGlobals());

const grow = (by: number) => {
  page.height += by;
  grown();
};

test("at the end it stays at the end", () => {
  expect(page.element.scrollTop).toBe(400);
  grow(300);
  expect(page.element.scrollTop).toBe(700);
  expect(scroll.below.value).toBe(false);
});

test("who reads above is left there, and told that there is more below", () => {
  page.scrollTo(100);
  grow(300);
  expect(page.element.scrollTop).toBe(100);
  expect(scroll.below.value).toBe(true);
});

test("back at the end it follows again", () => {
  page.scrollTo(100);
  grow(300);
  page.scrollTo(690);
  expect(scroll.below.value).toBe(false);
  grow(50);
  expect(page.element.scrollTop).toBe(750);
});

test("the event of its own scrolling that comes when much has grown since does not count as leaving", () => {
  page.height += 1_000;
  page.element.dispatchEvent(new Event("scroll"));
  grown();
  expect(page.element.scrollTop).toBe(1_400);
});

test("the button goes to the end and stays", () => {
  page.scrollTo(0);
  grow(10);
  scroll.toEnd();
  grow(90);
  expect(page.element.scrollTop).toBe(500);
});

/** Turns one below the other, each 50 pixels high, where the window's scrolling has them. */
function turns(count: number): HTMLElement[] {
  const made = Array.from({ length: count }, () => {
    const turn = document.createElement("div");
    turn.className = "ak-turn";
    turn.getBoundingClientRect = () => {
      const place = [...page.element.children].indexOf(turn) * 50 - page.element.scrollTop;
      return { top: place, bottom: place + 50 } as DOMRect;
    };
    return turn;
  });
  page.element.prepend(...made);
  page.height = page.element.children.length * 50;
  return made;
}

const topOf = (turn: HTMLElement | undefined): number | undefined => turn?.getBoundingClientRect().top;

test("earlier turns come above what somebody reads, and it stays where it is to the pixel", () => {
  document.body.append(page.element);
  const [, , third] = turns(10);
  page.scrollTo(120);
  expect(topOf(third)).toBe(-20);
  scroll.hold();
  turns(7);
  expect(topOf(third)).toBe(330);
  scroll.release();
  expect(topOf(third)).toBe(-20);
  expect(page.element.scrollTop).toBe(470);
  grow(50);
  expect(page.element.scrollTop).toBe(470);
  page.element.remove();
});

test("at the end nothing is held, and what was held and is gone moves nothing", () => {
  document.body.append(page.element);
  turns(10);
  page.scrollTo(400);
  scroll.hold();
  turns(7);
  scroll.release();
  expect(page.element.scrollTop).toBe(400);
  page.scrollTo(120);
  scroll.hold();
  page.element.replaceChildren();
  scroll.release();
  expect(page.element.scrollTop).toBe(120);
  page.element.remove();
});
