/** The user's preferences in JupyterLab's settings, where they are edited as "Agent". */
import type { CommandRegistry } from "@lumino/commands";
import type { ISettingRegistry } from "@jupyterlab/settingregistry";
import type { signal as makeSignal, Signal } from "@preact/signals";
import { storedSendKey, toPreferences, type Preferences, type PreferenceStore } from "../conversation/preferences";
import { trans, type Texts } from "../translation/translation";

export const SETTINGS = "agent-kernel:settings";
const TEXTS = new Set(["title", "description", "jupyter.lab.setting-icon-label"]);

export class LabPreferences implements PreferenceStore {
  readonly values: Signal<Preferences>;
  readonly #changed = () => (this.values.value = toPreferences(this.settings.composite));

  /** `signal` is the function of the panel's bundle that makes signals: the panel would not react to signals of this
   * bundle. */
  constructor(
    private readonly settings: ISettingRegistry.ISettings,
    private readonly commands: CommandRegistry,
    signal: typeof makeSignal,
  ) {
    this.values = signal(toPreferences(settings.composite));
    settings.changed.connect(this.#changed);
    this.#takeOver();
  }

  setSendKey(key: Preferences["sendKey"]): void {
    void this.settings.set("sendKey", key);
  }

  /** Whether the hint for the user's first notebook is due. Returns true once: the settings record that it was
   * shown. */
  async claimHint(): Promise<boolean> {
    if (this.settings.composite["showHint"] !== true) return false;
    await this.settings.set("showHint", false);
    return true;
  }

  open(): void {
    void this.commands.execute("settingeditor:open", { query: trans.__("Agent") });
  }

  dispose(): void {
    this.settings.changed.disconnect(this.#changed);
  }

  /** Move the choice of the key that sends a message from the browser's storage, where earlier versions of the panel
   * kept it, into the settings. */
  #takeOver(): void {
    const stored = storedSendKey.read();
    if (stored === "enter") return;
    storedSendKey.write("enter");
    if (this.settings.user["sendKey"] === undefined) this.setSendKey(stored);
  }
}

/** Translate the schema of the settings in the browser: the server's translation of schemas does not use our
 * catalog. */
export function translateSchema<Schema>(schema: Schema, texts: Texts): Schema {
  if (Array.isArray(schema)) return schema.map((one: unknown) => translateSchema(one, texts)) as Schema;
  if (typeof schema !== "object" || schema === null) return schema;
  const translated = Object.entries(schema).map(([name, value]: [string, unknown]) => [
    name,
    typeof value === "string" && TEXTS.has(name) ? texts.__(value) : translateSchema(value, texts),
  ]);
  return Object.fromEntries(translated) as Schema;
}
