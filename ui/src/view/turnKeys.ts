/** Keys of the conversation, anywhere in the panel: Alt+Up and Alt+Down move between turns, Alt+Enter moves to the
 * first open approval. */
import { useEffect } from "preact/hooks";

export function useTurnKeys(log: { current: HTMLElement | null }): void {
  useEffect(() => {
    const panel = log.current?.closest<HTMLElement>(".ak-panel") ?? log.current;
    const pressed = (event: KeyboardEvent) => {
      if (!log.current || !event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      const goal =
        event.key === "Enter"
          ? log.current.querySelector<HTMLElement>(".ak-approval")
          : event.key === "ArrowUp" || event.key === "ArrowDown"
            ? neighbouringTurn(log.current, event.key === "ArrowUp" ? -1 : 1)
            : null;
      if (!goal) return;
      event.preventDefault();
      goal.focus({ preventScroll: true });
      goal.scrollIntoView({ block: event.key === "Enter" ? "nearest" : "start" });
    };
    panel?.addEventListener("keydown", pressed);
    return () => panel?.removeEventListener("keydown", pressed);
  }, []);
}

/** Starts at the turn with the focus, or at the end. */
function neighbouringTurn(log: HTMLElement, step: number): HTMLElement | null {
  const turns = [...log.querySelectorAll<HTMLElement>(".ak-turn")];
  const here = turns.findIndex((turn) => turn.contains(document.activeElement));
  return turns[here < 0 ? turns.length - 1 : Math.max(0, Math.min(here + step, turns.length - 1))] ?? null;
}
