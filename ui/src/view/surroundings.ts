/** What every part of the panel may use, without importing the panel. */
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { Conversation } from "../conversation/conversation";
import type { Host } from "../panel";

export interface Surroundings {
  conversation: Conversation;
  host: Host;
}

export const Around = createContext<Surroundings | null>(null);

export function useSurroundings(): Surroundings {
  const found = useContext(Around);
  if (!found) throw new Error("outside of a panel");
  return found;
}
