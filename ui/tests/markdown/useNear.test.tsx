import { render } from "preact";
import { useRef } from "preact/hooks";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { place } from "../place";
import { useNear } from "../../src/markdown/useNear";

let told: (seen: { isIntersecting: boolean }[]) => void = () => undefined;

class Sight {
  constructor(tell: typeof told) {
    told = tell;
  }
  observe(): void {}
  disconnect(): void {}
}

function Part() {
  const here = useRef<HTMLParagraphElement>(null);
  const { now, ever } = useNear(here);
  return <p ref={here}>{`${now} ${ever}`}</p>;
}

beforeEach(() => {
  vi.stubGlobal("IntersectionObserver", Sight);
  void act(() => render(<Part />, place));
});
afterEach(() => {
  vi.unstubAllGlobals();
});

const seen = (...all: boolean[]): void => void act(() => told(all.map((isIntersecting) => ({ isIntersecting }))));

test("of several moves that are told at once the last one counts", () => {
  seen(false, true);
  expect(place.textContent).toBe("true true");
  seen(true, false);
  expect(place.textContent).toBe("false true");
});
