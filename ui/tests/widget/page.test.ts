import { afterEach, describe, expect, it } from "vitest";
import { serverOfPage } from "../../src/widget/page";

const configured = (config: unknown) => {
  document.body.replaceChildren();
  const script = document.createElement("script");
  script.id = "jupyter-config-data";
  script.type = "application/json";
  script.textContent = typeof config === "string" ? config : JSON.stringify(config);
  document.body.append(script);
};

describe("the server of a page", () => {
  afterEach(() => {
    document.body.replaceChildren();
  });

  it("is where the page says, below its own origin", () => {
    configured({ baseUrl: "/user/ada/" });
    const { origin } = location;
    const base = `${origin}/user/ada/`;
    expect(serverOfPage()).toEqual({ baseUrl: base, wsUrl: base.replace("http", "ws") });
    configured({ baseUrl: "/user/ada" });
    expect(serverOfPage()?.baseUrl).toBe(base);
  });

  it("is none at another origin, in a page that is not Jupyter's, or where the page makes no sense", () => {
    expect(serverOfPage()).toBeNull();
    for (const config of [{ baseUrl: "https://elsewhere.example/" }, { baseUrl: "javascript:alert(1)" }, "{", "null"]) {
      configured(config);
      expect(serverOfPage()).toBeNull();
    }
  });
});
