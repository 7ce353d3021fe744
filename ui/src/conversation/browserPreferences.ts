/** The user's preferences outside JupyterLab, where the panel has no settings editor: the browser stores which key
 * sends a message; all other preferences have their defaults. */
import { computed, signal } from "@preact/signals";
import { DEFAULTS, storedSendKey, type Preferences, type PreferenceStore } from "./preferences";

export class BrowserPreferences implements PreferenceStore {
  readonly #sendKey = signal(storedSendKey.read());
  readonly values = computed((): Preferences => ({ ...DEFAULTS, sendKey: this.#sendKey.value }));

  setSendKey(key: Preferences["sendKey"]): void {
    this.#sendKey.value = key;
    storedSendKey.write(key);
  }
}
