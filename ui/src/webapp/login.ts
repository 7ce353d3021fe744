/** The login of the page: a form for a token, and where to find one. */
import type { ServerSettings } from "../transport/server";
import { trans } from "../translation/translation";
import { logIn, type LoginResult } from "./session";

const NEW_TOKEN = "agent-kernel token new --user NAME \\\n  --scope turns --scope sessions \\\n  --scope files";

function problem(result: LoginResult): string {
  switch (result) {
    case "done":
      return "";
    case "wrong":
      return trans.__("The server does not know this token, or it has expired.");
    case "narrow":
      return trans.__("This token is not for conversations: it needs the scopes turns and sessions.");
    case "failed":
      return trans.__("The server could not log you in. Its log has the reason.");
    case "offline":
      return trans.__("The server does not answer.");
  }
}

function element<Name extends keyof HTMLElementTagNameMap>(
  name: Name,
  text = "",
  className = "",
): HTMLElementTagNameMap[Name] {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = className;
  return made;
}

/** Show the form in `place`, whose attribute names the file with the server's token, if that may be shown. `reason` is
 * shown above the form; `loggedIn` is called once, after the login. */
export function showLogin(place: HTMLElement, server: ServerSettings, reason: string, loggedIn: () => void): void {
  const form = element("form", "", "ak-login");
  const field = element("input");
  field.type = "password";
  field.name = "password";
  field.autocomplete = "current-password";
  field.required = true;
  const label = element("label", trans.__("Token"));
  label.append(field);
  const button = element("button", trans.__("Log in"));
  const failure = element("p", "", "ak-login-failure");
  failure.setAttribute("role", "alert");
  form.append(element("h1", trans.__("Agent")));
  if (reason) form.append(element("p", reason));
  form.append(label, button, failure, ...explanation(place.dataset["tokenFile"] ?? ""));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    void submit();
  });
  const submit = async () => {
    button.disabled = true;
    failure.textContent = "";
    const result = await logIn(server, field.value.trim());
    button.disabled = false;
    if (result === "done") {
      loggedIn();
      return;
    }
    failure.textContent = problem(result);
    field.select();
  };
  place.replaceChildren(form);
  field.focus();
}

function explanation(file: string): HTMLElement[] {
  const own = file
    ? [element("p", trans.__("The token of the server is in this file of its machine:")), element("pre", file)]
    : [element("p", trans.__("The command that started the server says where its token is."))];
  return [
    element("h2", trans.__("Where is the token?")),
    ...own,
    element("p", trans.__("If somebody else runs the server, ask them for a token of your own. They create it with:")),
    element("pre", NEW_TOKEN),
  ];
}
