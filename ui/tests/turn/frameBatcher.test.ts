import { effect, signal } from "@preact/signals";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Frames } from "../../src/turn/frameBatcher";
import { emptyTurn } from "../../src/turn/turn";
import { events } from "./events";

let frames: (() => void)[] = [];
beforeEach(() => {
  frames = [];
  vi.stubGlobal("requestAnimationFrame", (draw: () => void) => frames.push(draw));
  vi.stubGlobal("cancelAnimationFrame", () => (frames = []));
});
afterEach(() => vi.unstubAllGlobals());

const words = (count: number) =>
  events(
    ...Array.from({ length: count }, () => ["text.delta", { text: "a" }] as const).map(
      (one) => [...one] as ["text.delta", { text: string }],
    ),
  );

test("however many events come between two frames, they are drawn once", () => {
  const view = signal(emptyTurn("t", "s"));
  let drawn = 0;
  effect(() => {
    drawn += Number(view.value.seq > 0);
  });
  const all = new Frames();
  for (const event of words(1_000)) all.add(view, event);
  expect([frames.length, drawn]).toEqual([1, 0]);
  frames[0]?.();
  expect([drawn, view.value.seq]).toEqual([1, 1_000]);
});

test("a page that nobody sees draws nothing, and loses nothing", () => {
  const view = signal(emptyTurn("t", "s"));
  const all = new Frames();
  const [first, ...rest] = words(3);
  if (first) all.add(view, first);
  frames.shift()?.();
  for (const event of rest) all.add(view, event);
  expect(view.value.seq).toBe(1); // no frame came
  frames.shift()?.();
  expect(view.value.seq).toBe(3);
});
