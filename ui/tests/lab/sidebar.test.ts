import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { INotebookTracker } from "@jupyterlab/notebook";
import { expect, test, vi } from "vitest";
import type { Mounted } from "../../src/panel";
import { Sidebar } from "../../src/lab/sidebar";

const { hasAgentServer } = vi.hoisted(() => ({ hasAgentServer: vi.fn() }));
vi.mock("@lumino/widgets", () => ({
  Widget: class {
    readonly title = {};
    readonly node = document.createElement("div");
    addClass(): void {
      // of no use here
    }
  },
}));
vi.mock("@jupyterlab/apputils", () => ({ Notification: {} }));
vi.mock("@jupyterlab/notebook", () => ({ NotebookActions: {} }));
vi.mock("../../src/lab/icon", () => ({ agentIcon: null }));
vi.mock("../../src/lab/scriptUrl", () => ({ SCRIPT_FOLDER: "http://localhost/" }));
vi.mock("../../src/lab/missingServer", () => ({ hasAgentServer, showMissingServer: vi.fn() }));

test("a panel that could not be fetched is fetched again when it is asked for again", async () => {
  vi.stubGlobal("PANEL_FILE", "panel.js");
  vi.stubGlobal("STYLE_FILE", "panel.css");
  const app = { serviceManager: { serverSettings: {} } } as unknown as JupyterFrontEnd;
  const side = new Sidebar(app, {} as INotebookTracker);
  hasAgentServer.mockRejectedValueOnce(new Error("no network")).mockResolvedValueOnce(false);
  await expect(side.start()).rejects.toThrow("no network");
  await expect(side.start()).resolves.toBeNull();
  await expect(side.start()).resolves.toBeNull();
  expect(hasAgentServer).toHaveBeenCalledTimes(2);
});

test("the panel comes to the front to say why a turn could not be stopped, and only then", async () => {
  const activateById = vi.fn();
  const side = new Sidebar({ shell: { activateById } } as unknown as JupyterFrontEnd, {} as INotebookTracker);
  const failure = { value: null as Error | null };
  const conversation = { stop: vi.fn(), failure };
  vi.spyOn(side, "start").mockResolvedValue({ conversation } as unknown as Mounted);
  await side.stop();
  expect(activateById).not.toHaveBeenCalled();
  failure.value = new Error("gone");
  await side.stop();
  expect(activateById).toHaveBeenCalledOnce();
});
