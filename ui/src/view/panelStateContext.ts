/** The context that gives the header, the composer and the sheets the `Desk` of their panel. */
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Desk } from "../conversation/panelState";

export const OnDesk = createContext<Desk | null>(null);

export function useDesk(): Desk {
  const found = useContext(OnDesk);
  if (!found) throw new Error("outside of a panel");
  return found;
}
