/** Context with the `Desk` of this panel, for its header, composer and sheets. */
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Desk } from "../conversation/panelState";

export const OnDesk = createContext<Desk | null>(null);

export function useDesk(): Desk {
  const found = useContext(OnDesk);
  if (!found) throw new Error("outside of a panel");
  return found;
}
