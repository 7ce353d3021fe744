/** The focus of a question that goes away is handed on: to the next one, else to the conversation. Who is elsewhere by
 * then is left there. */
import { useLayoutEffect } from "preact/hooks";

/** `arrived`: the focus came in from elsewhere. */
export function useFocusHandover(card: { current: HTMLElement | null }, arrived: () => void): void {
  useLayoutEffect(() => {
    const { current } = card;
    const log = current?.closest<HTMLElement>(".ak-turns");
    if (!current || !log) return;
    let within = current.contains(document.activeElement);
    const came = ({ relatedTarget }: FocusEvent) => {
      if (!(relatedTarget instanceof Node && current.contains(relatedTarget))) arrived();
      within = true;
    };
    // Without a goal nobody knows yet where it goes: the window may have lost it, or the card is being taken away.
    const went = ({ relatedTarget }: FocusEvent) => {
      if (relatedTarget instanceof Node && !current.contains(relatedTarget)) within = false;
    };
    current.addEventListener("focusin", came);
    current.addEventListener("focusout", went);
    return () => {
      const here = document.activeElement;
      if (!within || (here && here !== document.body && !current.contains(here))) return;
      const others = [...log.querySelectorAll<HTMLElement>(".ak-approval")].filter((other) => other !== current);
      (others[0] ?? log).focus({ preventScroll: others.length === 0 });
    };
  }, []);
}
