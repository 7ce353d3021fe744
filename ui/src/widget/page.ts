/** The Jupyter server of the page, if it is also the one of the widget's kernel. */
import type { ServerSettings } from "../transport/server";

/** The Jupyter server from which the page was loaded; null if no Jupyter server sent the page, or if the server has
 * another origin than the page. */
export function serverOfPage(page: Document = document): ServerSettings | null {
  try {
    const config = JSON.parse(page.getElementById("jupyter-config-data")?.textContent ?? "") as { baseUrl?: string };
    const base = new URL(config.baseUrl ?? "/", page.location.href);
    if (base.origin !== page.location.origin || !base.protocol.startsWith("http")) return null;
    const baseUrl = base.href.endsWith("/") ? base.href : `${base.href}/`;
    return { baseUrl, wsUrl: baseUrl.replace(/^http/, "ws") };
  } catch {
    return null;
  }
}

/** Whether the server knows the kernel. Only then the user of the page is the user of the kernel. */
export async function hasKernel(server: ServerSettings, kernel: string): Promise<boolean> {
  try {
    const path = `agent/v1/binding?kernel=${encodeURIComponent(kernel)}`;
    return (await fetch(server.baseUrl + path, { credentials: "same-origin" })).ok;
  } catch {
    return false;
  }
}
