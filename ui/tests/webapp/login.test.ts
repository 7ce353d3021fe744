import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { clearTab, tabStorage } from "../../src/conversation/browserStorage";
import { showLogin } from "../../src/webapp/login";
import { isUnknownHere, logIn, logOut, serverAt } from "../../src/webapp/session";

const server = serverAt("https://agents.example/team/?code=x");
const answers = (status: number, type = "basic") =>
  vi.fn<typeof fetch>(() => Promise.resolve({ status, type } as Response));

afterEach(() => {
  vi.unstubAllGlobals();
  document.body.replaceChildren();
});

describe("the server of the page", () => {
  it("is where the page is, whatever its query", () => {
    expect(server).toEqual({ baseUrl: "https://agents.example/team/", wsUrl: "wss://agents.example/team/" });
  });

  it("does not know the browser if it says so, and not because it is gone or fails", async () => {
    for (const [status, unknown] of [
      [401, true],
      [200, false],
      [403, false],
      [500, false],
    ] as const) {
      vi.stubGlobal("fetch", answers(status));
      expect(await isUnknownHere(server)).toBe(unknown);
    }
    vi.stubGlobal(
      "fetch",
      vi.fn(() => Promise.reject(new TypeError("gone"))),
    );
    expect(await isUnknownHere(server)).toBe(false);
  });
});

describe("the login", () => {
  let place: HTMLElement;
  const loggedIn = vi.fn();
  const submit = (token: string) => {
    const field = place.querySelector("input");
    if (field) field.value = token;
    place.querySelector("form")?.requestSubmit();
  };

  beforeEach(() => {
    loggedIn.mockReset();
    place = document.createElement("main");
    document.body.append(place);
  });

  it("sends the token in the body, never in the address, and says what is wrong with it", async () => {
    const fetched = answers(401);
    vi.stubGlobal("fetch", fetched);
    showLogin(place, server, "Why", loggedIn);
    expect(place.textContent).toContain("Why");
    submit(" secret ");
    await vi.waitFor(() => expect(place.querySelector("[role=alert]")?.textContent).toContain("does not know"));
    const [address, init] = fetched.mock.calls[0] ?? [];
    expect(address).toBe("https://agents.example/team/login");
    expect(String(init?.body as URLSearchParams)).toBe("password=secret");
    expect(loggedIn).not.toHaveBeenCalled();
  });

  it("names the file with the token as the server names it, and no file if the token is elsewhere", () => {
    const file = "~/Library/Application Support/agent-kernel/serve-token";
    place.dataset["tokenFile"] = file;
    showLogin(place, server, "", loggedIn);
    expect(place.querySelector("pre")?.textContent).toBe(file);
    place.dataset["tokenFile"] = "";
    showLogin(place, server, "", loggedIn);
    expect(place.textContent).toContain("The command that started the server says where its token is.");
    expect(place.textContent).not.toContain("serve-token");
  });

  it("ends when the server has set its cookie", async () => {
    vi.stubGlobal("fetch", answers(0, "opaqueredirect"));
    showLogin(place, server, "", loggedIn);
    submit("secret");
    await vi.waitFor(() => expect(loggedIn).toHaveBeenCalledOnce());
  });

  it("tells a token without the scopes from a wrong one, and both from a server that fails or is gone", async () => {
    for (const [status, result] of [
      [401, "wrong"],
      [403, "narrow"],
      [500, "failed"],
    ] as const) {
      vi.stubGlobal("fetch", answers(status));
      expect(await logIn(server, "x")).toBe(result);
    }
    vi.stubGlobal(
      "fetch",
      vi.fn(() => Promise.reject(new TypeError("gone"))),
    );
    expect(await logIn(server, "x")).toBe("offline");
  });
});

describe("the logout", () => {
  it("is done when the server no longer knows the browser, and not before", async () => {
    const fetched = answers(401);
    vi.stubGlobal("fetch", fetched);
    expect(await logOut(server)).toBe(true);
    expect(fetched.mock.calls[0]?.[0]).toBe("https://agents.example/team/logout");
    vi.stubGlobal("fetch", answers(200));
    expect(await logOut(server)).toBe(false);
    vi.stubGlobal(
      "fetch",
      vi.fn(() => Promise.reject(new TypeError("gone"))),
    );
    expect(await logOut(server)).toBe(false);
  });

  it("leaves nothing of the person in the tab, and what is not ours alone", () => {
    tabStorage.write("draft", "a secret");
    sessionStorage.setItem("other", "stays");
    clearTab();
    expect(Object.keys(sessionStorage)).toEqual(["other"]);
    sessionStorage.clear();
  });
});
