/** Adds the panel to the right side bar of JupyterLab and Notebook 7, bound to the current notebook. */
import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette, IThemeManager } from "@jupyterlab/apputils";
import { ICompletionProviderManager } from "@jupyterlab/completer";
import { ILauncher } from "@jupyterlab/launcher";
import { IMermaidManager } from "@jupyterlab/mermaid";
import { INotebookTracker } from "@jupyterlab/notebook";
import { ISettingRegistry } from "@jupyterlab/settingregistry";
import { IStateDB } from "@jupyterlab/statedb";
import { IStatusBar } from "@jupyterlab/statusbar";
import { ITranslator } from "@jupyterlab/translation";
import { DOMAIN, setTranslation, trans, type Translation } from "../translation/translation";
import { Commands, SHOW } from "./commands";
import { InlineCompletion } from "./inlineCompletion";
import { SETTINGS, translateSchema } from "./preferences";
import { Sidebar } from "./sidebar";
import { Status } from "./status";

const translationOf = (translator: ITranslator | null): Translation | undefined =>
  translator ? { texts: translator.load(DOMAIN), language: translator.languageCode } : undefined;

/** Translates the entry "Agent" of the Settings Editor. JupyterLab loads these settings only after this plugin has
 * registered its transformation, because their schema sets `jupyter.lab.transform`. */
const settings: JupyterFrontEndPlugin<void> = {
  id: SETTINGS,
  description: "The settings of the chat panel of agent-kernel.",
  autoStart: true,
  requires: [ISettingRegistry],
  optional: [ITranslator],
  activate(_: JupyterFrontEnd, registry: ISettingRegistry, translator: ITranslator | null) {
    const texts = translationOf(translator)?.texts ?? trans;
    registry.transform(SETTINGS, {
      fetch: (plugin) => ({ ...plugin, schema: translateSchema(plugin.schema, texts) }),
    });
  },
};

const panel: JupyterFrontEndPlugin<void> = {
  id: "agent-kernel:panel",
  description: "The chat panel of agent-kernel.",
  autoStart: true,
  requires: [INotebookTracker],
  optional: [
    ...[ILayoutRestorer, ICommandPalette, IStatusBar, ILauncher, ISettingRegistry, ITranslator],
    ...[ICompletionProviderManager, IMermaidManager, IThemeManager, IStateDB],
  ],
  activate(
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    bar: IStatusBar | null,
    launcher: ILauncher | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null,
    completer: ICompletionProviderManager | null,
    mermaid: IMermaidManager | null,
    themes: IThemeManager | null,
    state: IStateDB | null,
  ) {
    const translation = translationOf(translator);
    if (translation) setTranslation(translation);
    const side = new Sidebar(app, tracker, registry, translation);
    side.state = state;
    side.drawing = mermaid && { mermaid, themes };
    app.shell.add(side, "right", { rank: 200 });
    restorer?.add(side, side.id);
    new Commands(app, tracker, side).register(palette, launcher);
    if (bar) {
      side.status = new Status(bar, {
        panel: () => void app.commands.execute(SHOW),
        card: () => void side.question(),
        cell: (cell) => side.cellQuestion(cell),
      });
    }
    if (completer) {
      side.completion = new InlineCompletion(tracker);
      completer.registerInlineProvider(side.completion);
    }
    void app.restored.then(() => requestIdleCallback(() => void side.start(), { timeout: 2_000 }));
  },
};

export const plugins: JupyterFrontEndPlugin<unknown>[] = [settings, panel];
