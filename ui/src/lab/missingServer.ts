/** The notice in the side bar when the server does not run agent-kernel, with the steps to install it. */
import { ServerConnection } from "@jupyterlab/services";
import { trans } from "../translation/translation";

const STEPS = "jupyter server extension enable jupyter_ext";

export function showMissingServer(node: HTMLElement, again: () => void): void {
  const notice = document.createElement("section");
  notice.className = "ak-absent";
  notice.setAttribute("aria-label", trans.__("Agent"));
  const title = document.createElement("h2");
  title.textContent = trans.__("This server does not run the agent");
  const text = document.createElement("p");
  text.textContent =
    trans.__("The panel is installed, but the Jupyter server does not run the extension that the panel needs.") +
    " " +
    trans.__("Install agent-kernel where the server runs, enable it there, and restart the server:");
  const command = document.createElement("pre");
  command.textContent = STEPS;
  const retry = document.createElement("button");
  retry.type = "button";
  retry.className = "jp-mod-styled jp-mod-accept";
  retry.textContent = trans.__("Look again");
  retry.addEventListener("click", again);
  notice.append(title, text, command, retry);
  node.replaceChildren(notice);
}

/** Whether the server has the API of agent-kernel. Also true for a server that does not respond, because the panel
 * reports that itself. */
export async function hasAgentServer(settings: ServerConnection.ISettings): Promise<boolean> {
  try {
    const answer = await ServerConnection.makeRequest(`${settings.baseUrl}agent/v1/health`, {}, settings);
    return answer.status !== 404;
  } catch {
    return true;
  }
}
