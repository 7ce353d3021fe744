/** The panel as an anywidget, in a cell's output. */
import { mount, ServerTransport } from "../panel";

interface Model {
  get(name: string): string;
}

export default {
  render({ model, el }: { model: Model; el: HTMLElement }): () => void {
    const baseUrl = model.get("base_url") || "/";
    const wsUrl = baseUrl.startsWith("http") ? baseUrl.replace(/^http/, "ws") : "";
    const transport = new ServerTransport({ baseUrl, wsUrl });
    const mounted = mount(el, { transport, notebook: null });
    return () => {
      mounted.unmount();
      transport.close();
    };
  },
};
