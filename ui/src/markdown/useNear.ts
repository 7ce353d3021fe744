/** Tells a component when its element comes near the visible area, so that it can wait with work until then. */
import type { RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";

const NEAR = "400px";

/** Whether the element is, or ever was, near the visible area. */
export function useNear(place: RefObject<Element | null>): { now: boolean; ever: boolean } {
  const [near, setNear] = useState({ now: false, ever: false });
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    if (typeof IntersectionObserver === "undefined") {
      setNear({ now: true, ever: true });
      return;
    }
    const observer = new IntersectionObserver(
      (entries) => {
        const now = entries.at(-1)?.isIntersecting ?? false;
        setNear((before) => ({ now, ever: before.ever || now }));
      },
      { rootMargin: NEAR },
    );
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return near;
}
