/** Limits how often a growing text is rendered, so that most of the time is left to the page. */
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

const EVERY_MS = 50;
/** The pause after a rendering is at least this many times as long as the rendering took. */
const SHARE = 4;

export function useSteady(text: string, done: boolean): string {
  const [shown, setShown] = useState(text);
  const latest = useRef(text);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const took = useRef(0);
  const began = performance.now();
  latest.current = text;
  useLayoutEffect(() => {
    took.current = performance.now() - began;
  });
  useEffect(() => {
    if (done || text === shown || timer.current !== undefined) return;
    timer.current = setTimeout(
      () => {
        timer.current = undefined;
        setShown(latest.current);
      },
      Math.max(EVERY_MS, SHARE * took.current),
    );
  });
  useEffect(() => () => clearTimeout(timer.current), []);
  return done ? text : shown;
}
