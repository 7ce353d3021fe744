/** What every component of the panel may use: the conversation, and the host that the panel is mounted in. It is a
 * file of its own, so that Markdown and media can use it without importing the panel. */
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { NotebookHost } from "../notebook/notebook";
import type { Transport } from "../transport/transport";
import type { Translation } from "../translation/translation";
import type { Conversation } from "./conversation";
import type { PreferenceStore } from "./preferences";

/** Where the panel is mounted: JupyterLab, or a widget in a cell. */
export interface PanelHost {
  transport: Transport;
  /** Null where no notebook is in reach. */
  notebook: NotebookHost | null;
  /** Absent where the browser keeps the preferences. */
  preferences?: PreferenceStore;
  /** Absent for English. */
  translation?: Translation;
  /** Bring the panel to the front. Absent where it is always there. */
  show?: () => void;
  /** End the login of this browser. Absent where the host has a way of its own, or no login. */
  logOut?: () => void;
}

export interface PanelParts {
  conversation: Conversation;
  host: PanelHost;
}

export const PanelContext = createContext<PanelParts | null>(null);

export function usePanel(): PanelParts {
  const found = useContext(PanelContext);
  if (!found) throw new Error("This component must be rendered inside of a panel.");
  return found;
}
