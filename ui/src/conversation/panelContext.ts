/** What every component of the panel may use: the conversation, and the host that the panel is mounted in. It is a file
 * of its own, so that the modules for Markdown and media can use it without importing the panel. */
import type { ReadonlySignal } from "@preact/signals";
import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { NotebookHost } from "../notebook/notebook";
import type { Transport } from "../transport/transport";
import type { Translation } from "../translation/translation";
import type { Conversation } from "./conversation";
import type { PreferenceStore } from "./preferences";
import type { Desk } from "./panelState";

export interface Drawing {
  svg: string;
  /** The title that the source of the diagram gives; empty if it gives none. */
  title: string;
  /** The background colour for which the drawing's colours were chosen. */
  background: string;
}

/** Draws Mermaid diagrams. */
export interface DiagramLibrary {
  /** The theme of the page. When it changes, drawings have to be made again in the colours of the new theme. */
  readonly theme: ReadonlySignal<string>;
  /** Rejects if the source cannot be drawn. */
  draw(source: string): Promise<Drawing>;
}

/** What the page around the panel provides: JupyterLab, a widget in a cell, or the web page of `agent-kernel serve`. */
export interface PanelHost {
  transport: Transport;
  /** Null for a panel without a notebook, as in the web page of `agent-kernel serve`. */
  notebook: NotebookHost | null;
  /** The user's preferences. Absent if the browser keeps them (`BrowserPreferences`). */
  preferences?: PreferenceStore;
  /** The translation of the panel's texts. Absent for English. */
  translation?: Translation;
  /** The library that draws diagrams. Absent if the host has none; diagrams are then shown as code. */
  diagrams?: DiagramLibrary;
  /** Bring the panel to the front. Absent if the panel is always visible. */
  show?: () => void;
  /** End the login of this browser. Absent if the host has its own button for that, or has no login. */
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

/** Gives the header, the composer and the sheets the `Desk` of their panel. */
export const OnDesk = createContext<Desk | null>(null);

export function useDesk(): Desk {
  const found = useContext(OnDesk);
  if (!found) throw new Error("outside of a panel");
  return found;
}
