import type { ISettingRegistry } from "@jupyterlab/settingregistry";
import type { CommandRegistry } from "@lumino/commands";
import { signal } from "@preact/signals";
import { afterEach, expect, test, vi } from "vitest";
import { storedSendKey } from "../../src/conversation/preferences";
import { LabPreferences, translateSchema } from "../../src/lab/preferences";
import { textsOf } from "../../src/translation/translation";

function settingsOf(user: Record<string, unknown>) {
  const changed = { connect: vi.fn(), disconnect: vi.fn() };
  const set = vi.fn(() => Promise.resolve());
  return { set, settings: { composite: user, user, changed, set } as unknown as ISettingRegistry.ISettings };
}

const commands = { execute: vi.fn() } as unknown as CommandRegistry;

afterEach(() => localStorage.clear());

test("a value that the schema does not allow has its default", () => {
  const { settings } = settingsOf({ place: "everywhere", effort: "quick", instructions: 7, showFacts: false });
  expect(new LabPreferences(settings, commands, signal).values.value).toEqual({
    place: "draft",
    effort: "quick",
    sendKey: "enter",
    instructions: "",
    showFacts: false,
  });
});

test("the key that sends is taken over from the browser once, unless the settings name one", () => {
  storedSendKey.write("ctrl-enter");
  const { settings, set } = settingsOf({});
  new LabPreferences(settings, commands, signal);
  expect(set).toHaveBeenCalledExactlyOnceWith("sendKey", "ctrl-enter");
  new LabPreferences(settings, commands, signal);
  expect(set).toHaveBeenCalledOnce();
  storedSendKey.write("ctrl-enter");
  const chosen = settingsOf({ sendKey: "enter" });
  new LabPreferences(chosen.settings, commands, signal);
  expect(chosen.set).not.toHaveBeenCalled();
});

test("the hint for a first notebook is due once, and never where a server does not know it", async () => {
  const { settings, set } = settingsOf({ showHint: true });
  expect(await new LabPreferences(settings, commands, signal).claimHint()).toBe(true);
  expect(set).toHaveBeenCalledExactlyOnceWith("showHint", false);
  for (const later of [{ showHint: false }, {}]) {
    const shown = settingsOf(later);
    expect(await new LabPreferences(shown.settings, commands, signal).claimHint()).toBe(false);
    expect(shown.set).not.toHaveBeenCalled();
  }
});

test("the texts of a schema are translated, and its values and names are not", () => {
  const texts = textsOf({ Draft: ["Entwurf"], title: ["Titel"] });
  const schema = {
    title: "Draft",
    properties: { title: { default: "Draft", oneOf: [{ const: "Draft", title: "Draft" }] } },
  };
  expect(translateSchema(schema, texts)).toEqual({
    title: "Entwurf",
    properties: { title: { default: "Draft", oneOf: [{ const: "Draft", title: "Entwurf" }] } },
  });
});
