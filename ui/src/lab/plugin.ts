/** Adds the panel to the right side bar of JupyterLab and Notebook 7, bound to the current notebook. */
import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import { ILauncher } from "@jupyterlab/launcher";
import { INotebookTracker } from "@jupyterlab/notebook";
import { IStatusBar } from "@jupyterlab/statusbar";
import { Commands, SHOW } from "./commands";
import { Sidebar } from "./sidebar";
import { Status } from "./status";

const panel: JupyterFrontEndPlugin<void> = {
  id: "agent-kernel:panel",
  description: "The chat panel of agent-kernel.",
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ILayoutRestorer, ICommandPalette, IStatusBar, ILauncher],
  activate(
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    bar: IStatusBar | null,
    launcher: ILauncher | null,
  ) {
    const side = new Sidebar(app, tracker);
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
    void app.restored.then(() => requestIdleCallback(() => void side.start(), { timeout: 2_000 }));
  },
};

export const plugins: JupyterFrontEndPlugin<unknown>[] = [panel];
