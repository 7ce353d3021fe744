/** The user's preferences for all conversations. JupyterLab keeps them in its settings; elsewhere the browser keeps
 * which key sends a message, and the other preferences have their defaults. */
import type { ReadonlySignal } from "@preact/signals";
import { browserStorage } from "./browserStorage";

export type Where = "live" | "draft" | "sandbox";

export interface Preferences {
  /** Where code runs in the turn of a message, unless the user chooses another place for the message. */
  place: Where;
  /** How many Python programs the model writes for a question before one is used; `server`: as the server is
   * configured. */
  effort: "server" | "quick" | "auto" | "thorough";
  sendKey: "enter" | "ctrl-enter";
  /** Instructions of the user that the model reads in every turn that this page starts. */
  instructions: string;
  /** Whether tokens and seconds are shown below an answer. */
  showFacts: boolean;
}

export const DEFAULTS: Preferences = {
  place: "draft",
  effort: "server",
  sendKey: "enter",
  instructions: "",
  showFacts: true,
};

export interface PreferenceStore {
  readonly values: ReadonlySignal<Preferences>;
  setSendKey(key: Preferences["sendKey"]): void;
  /** Open the editor for all preferences. Absent if the host has none. */
  open?(): void;
}

const ENTER = "enter makes a new line";

/** Which key sends a message, as this browser stored it. JupyterLab moves the stored value into its own settings. */
export const storedSendKey = {
  read: (): Preferences["sendKey"] => (browserStorage.read(ENTER) ? "ctrl-enter" : "enter"),
  write: (key: Preferences["sendKey"]): void => browserStorage.write(ENTER, key === "enter" ? "" : "1"),
};

/** Returns the given values that have the right type, and the default for every other. Instructions are cut to the
 * length that the server accepts. */
export function toPreferences(given: Readonly<Record<string, unknown>>): Preferences {
  const { place, effort, sendKey, instructions, showFacts } = given;
  return {
    place: oneOf(["live", "draft", "sandbox"], place, DEFAULTS.place),
    effort: oneOf(["server", "quick", "auto", "thorough"], effort, DEFAULTS.effort),
    sendKey: oneOf(["enter", "ctrl-enter"], sendKey, DEFAULTS.sendKey),
    instructions: typeof instructions === "string" ? instructions.slice(0, MAX_INSTRUCTIONS) : "",
    showFacts: typeof showFacts === "boolean" ? showFacts : DEFAULTS.showFacts,
  };
}

export const MAX_INSTRUCTIONS = 4_000;

function oneOf<Value extends string>(allowed: readonly Value[], given: unknown, otherwise: Value): Value {
  return allowed.find((value) => value === given) ?? otherwise;
}
