/** Returns the focus when a part of the panel that had it goes away, so that a person with a keyboard stays where they
 * were. */
import { useLayoutEffect, useRef } from "preact/hooks";

/** When the component goes away and the focus is inside of `part`, the focus returns to where it was before the component
 * appeared; if that is gone too, to what `fallback` finds. */
export function useFocusReturn(
  part: { current: HTMLElement | null },
  fallback: () => HTMLElement | null | undefined,
): void {
  const before = useRef(document.activeElement);
  const find = useRef(fallback);
  find.current = fallback;
  useLayoutEffect(() => {
    const element = part.current; // the reference is empty when the component goes away
    return () => {
      if (!element?.contains(document.activeElement)) return;
      const back = before.current;
      requestAnimationFrame(() => {
        if (document.activeElement && document.activeElement !== document.body) return; // it is somewhere else already
        const isThere = back instanceof HTMLElement && back.isConnected && back !== document.body;
        (isThere ? back : find.current())?.focus();
      });
    };
  }, []);
}
