/** The user's preferences for all conversations. JupyterLab keeps them in its settings; elsewhere the browser keeps
 * which key sends a message, and the other preferences have their defaults. */
import type { ReadonlySignal } from "@preact/signals";
import { browserStorage } from "./browserStorage";

export type Where = "live" | "draft" | "sandbox";

export interface Preferences {
  /** Where code of a message runs, if the message does not say. */
  place: Where;
  /** How many programs are compared; `server` leaves it to the configuration of the server. */
  effort: "server" | "quick" | "auto" | "thorough";
  sendKey: "enter" | "ctrl-enter";
  /** Read by the model in every turn that this page starts. */
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
  /** Show the place where all of them are changed. Absent without such a place. */
  open?(): void;
}

const ENTER = "enter makes a new line";

/** Which key sends a message, as this browser stored it. JupyterLab copies it into its settings. */
export const storedSendKey = {
  read: (): Preferences["sendKey"] => (browserStorage.read(ENTER) ? "ctrl-enter" : "enter"),
  write: (key: Preferences["sendKey"]): void => browserStorage.write(ENTER, key === "enter" ? "" : "1"),
};

/** Returns the given values that have the right type, and the default for every other. Instructions are cut to the length that the server accepts. */
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
