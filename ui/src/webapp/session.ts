/** The server that served the page, and the login of the browser there. */
import type { ServerSettings } from "../transport/server";

/** The addresses of the server. `page` is the address of the page, which is the root of the server, below the server's
 * prefix if it has one. */
export function serverAt(page: string): ServerSettings {
  const baseUrl = new URL(".", page).href;
  return { baseUrl, wsUrl: baseUrl.replace(/^http/, "ws") };
}

/** Whether the server answers that this browser is not logged in. Returns false if the server does not answer, because
 * the panel itself shows that. */
export async function isUnknownHere(server: ServerSettings): Promise<boolean> {
  try {
    return (await fetch(`${server.baseUrl}agent/v1/health`, { credentials: "same-origin" })).status === 401;
  } catch {
    return false;
  }
}

export type LoginResult = "done" | "wrong" | "narrow" | "failed" | "offline";

/** Log in with a token, which the server replaces by a cookie that no script can read. The result "narrow" means that
 * the token does not allow conversations. */
export async function logIn(server: ServerSettings, token: string, page: Document = document): Promise<LoginResult> {
  const xsrf = /(?:^|; )_xsrf=([^;]+)/.exec(page.cookie)?.[1] ?? "";
  const init: RequestInit = {
    method: "POST",
    body: new URLSearchParams({ password: token }),
    headers: { "X-XSRFToken": xsrf },
    credentials: "same-origin",
    redirect: "manual",
  };
  try {
    const { type, status } = await fetch(`${server.baseUrl}login`, init);
    if (type === "opaqueredirect" || (status >= 200 && status < 400)) return "done";
    return status === 401 ? "wrong" : status === 403 ? "narrow" : "failed";
  } catch {
    return "offline";
  }
}

/** End the login of this browser. Returns whether the server has confirmed that it no longer knows the browser. */
export async function logOut(server: ServerSettings): Promise<boolean> {
  try {
    await fetch(`${server.baseUrl}logout`, { credentials: "same-origin", cache: "no-store" });
  } catch {
    return false;
  }
  return await isUnknownHere(server);
}
