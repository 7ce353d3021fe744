/** When a card with the focus disappears, the focus moves to the next card, or to the conversation. A focus elsewhere
 * is left alone. */
import { useLayoutEffect } from "preact/hooks";

/** `arrived` is called when the focus enters the card. */
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
    // Without `relatedTarget` it is not known yet where the focus goes: the window may have lost it, or the card is
    // being removed.
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
