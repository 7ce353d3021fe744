/** Puts the panel into the right side bar of JupyterLab and Notebook 7, bound to the notebook in front. */
import { ILayoutRestorer, type JupyterFrontEnd, type JupyterFrontEndPlugin } from "@jupyterlab/application";
import { ICommandPalette } from "@jupyterlab/apputils";
import { INotebookTracker } from "@jupyterlab/notebook";
import { Side } from "./side";

export const SHOW = "agent-kernel:show";

const panel: JupyterFrontEndPlugin<void> = {
  id: "agent-kernel:panel",
  description: "The chat panel of agent-kernel.",
  autoStart: true,
  requires: [INotebookTracker],
  optional: [ILayoutRestorer, ICommandPalette],
  activate(
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
  ) {
    const side = new Side(app, tracker);
    app.shell.add(side, "right", { rank: 200 });
    restorer?.add(side, side.id);
    void app.restored.then(() => requestIdleCallback(() => side.start(), { timeout: 2_000 }));
    app.commands.addCommand(SHOW, {
      label: "Agent: Show the Panel",
      execute: () => {
        app.shell.activateById(side.id);
        side.focus();
      },
    });
    app.commands.addKeyBinding({ command: SHOW, keys: ["Accel Shift L"], selector: "body" });
    palette?.addItem({ command: SHOW, category: "Agent" });
  },
};

export const plugins: JupyterFrontEndPlugin<unknown>[] = [panel];
