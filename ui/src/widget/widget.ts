/** The panel as an anywidget in the output of a cell. It connects to the Jupyter server of the page if this server has
 * the widget's kernel, otherwise it communicates through the kernel. */
import { mount, ServerTransport } from "../panel";
import { CommTransport, type CommModel } from "../transport/comm";
import type { Transport } from "../transport/transport";
import type { Binding } from "../wire/schema";
import { WidgetNotebook } from "./notebook";
import { hasKernel, serverOfPage } from "./page";
import { translationFor } from "../translation/translation";
import german from "../../../jupyter_ext/locale/de_DE/LC_MESSAGES/agent_kernel.json";
import "./widget.css";

/** The translations of the panel by language. They are part of this module, because the page may belong to a front end
 * without our server and could not load them. */
export const CATALOGS = { de: german };
/** The web page of `agent-kernel serve` loads this module and uses these exports, so that the package does not contain
 * a second copy of the panel. */
export { mount, ServerTransport };

interface Model extends CommModel {
  get(name: "kernel" | "way"): string;
  get(name: "height"): number;
}

export default {
  async render({ model, el }: { model: Model; el: HTMLElement }): Promise<() => void> {
    const box = document.createElement("div"); // the front end sets the size of the view's own element
    box.className = "ak-in-cell";
    box.style.height = `${model.get("height")}px`;
    box.dataset["lmSuppressShortcuts"] = "true"; // Lab must not run its shortcuts on what is typed in here
    el.append(box);
    const kernel = model.get("kernel");
    const transport = await chooseTransport(model, kernel);
    const notebook = new WidgetNotebook(
      kernel,
      await notebookOf(transport, kernel),
      transport instanceof CommTransport,
    );
    const translation = translationFor(document.documentElement.lang, CATALOGS);
    const mounted = mount(box, { transport, notebook, translation });
    return () => {
      mounted.unmount();
      transport.close();
      box.remove();
    };
  },
};

async function chooseTransport(model: Model, kernel: string): Promise<Transport> {
  const server = model.get("way") === "kernel" ? null : serverOfPage();
  if (server && (model.get("way") === "server" || (await hasKernel(server, kernel))))
    return new ServerTransport(server);
  return new CommTransport(model);
}

/** The path of the kernel's notebook. Empty if it cannot be loaded within a second: the panel itself shows problems. */
async function notebookOf(transport: Transport, kernel: string): Promise<string> {
  const waited = new Promise<string>((resolve) => setTimeout(() => resolve(""), 1_000));
  const asked = transport.request<Binding>("GET", `binding?kernel=${encodeURIComponent(kernel)}`).then(
    (binding) => binding.notebook ?? "",
    () => "",
  );
  return await Promise.race([asked, waited]);
}
