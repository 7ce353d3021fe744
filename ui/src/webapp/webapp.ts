/** The panel in a page of its own, which `agent-kernel serve` serves: the login, then the panel in the whole window.
 * The panel itself is in the module of the widget, which the page loads beside this one (`build.mjs`). */
import { setTranslation, trans, translationFor } from "../translation/translation";
import { clearTab } from "../conversation/browserStorage";
import { ApiError } from "../transport/transport";
import { CATALOGS, mount, ServerTransport } from "../widget/widget";
import { showLogin } from "./login";
import { isUnknownHere, logOut, serverAt } from "./session";
import "./webapp.css";

const LOOK_AGAIN_MS = 5_000;

const server = serverAt(document.baseURI);
const translation = translationFor(navigator.language, CATALOGS);
setTranslation(translation);
document.documentElement.lang = translation.language;

function showPanel(place: HTMLElement): void {
  const heading = document.createElement("h1"); // for those who do not see the page; the panel has no heading of its own
  heading.className = "ak-unseen";
  heading.textContent = trans.__("Agent");
  const box = document.createElement("div");
  place.replaceChildren(heading, box);
  const transport = new ServerTransport(server);
  const mounted = mount(box, { transport, notebook: null, translation, logOut: () => void leave() });
  const endTitle = mounted.conversation.session.subscribe((session) => {
    document.title = [session?.title, trans.__("Agent")].filter(Boolean).join(" - ");
  });
  const looking = setInterval(() => void look(), LOOK_AGAIN_MS);
  const end = (reason: string) => {
    clearInterval(looking);
    endTitle();
    document.title = trans.__("Agent");
    mounted.unmount();
    transport.close();
    askForLogin(place, reason);
  };
  /** If the connection was lost because the login has ended, ask for the login again. In all other cases the transport
   * reconnects by itself. */
  const look = async () => {
    if (transport.connection.value !== "offline" || !(await isUnknownHere(server)) || !box.isConnected) return;
    end(trans.__("Your login has ended. Log in again to continue."));
  };
  const leave = async () => {
    const isOut = await logOut(server);
    if (!box.isConnected) return;
    if (!isOut) {
      const message = trans.__("The server has not confirmed that you are logged out. Try again when it answers.");
      mounted.conversation.failure.value = new ApiError(0, { code: "logout", message });
      return;
    }
    end(trans.__("You are logged out."));
    clearTab(); // after the panel, which would write its draft again
  };
}

function askForLogin(place: HTMLElement, reason = ""): void {
  showLogin(place, server, reason, () => showPanel(place));
}

const place = document.getElementById("agent");
if (place) {
  if (await isUnknownHere(server)) askForLogin(place);
  else showPanel(place);
}
