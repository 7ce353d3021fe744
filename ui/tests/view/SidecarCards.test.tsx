// @vitest-environment jsdom
import { signal } from "@preact/signals";
import { render } from "preact";
import { act } from "preact/test-utils";
import { beforeEach, expect, test, vi } from "vitest";
import { place } from "../place";
import type { Conversation } from "../../src/conversation/conversation";
import type { PanelHost } from "../../src/conversation/panelContext";
import { ApiError } from "../../src/transport/transport";
import { SidecarCards } from "../../src/view/SidecarCards";
import { PanelContext } from "../../src/conversation/panelContext";
import type { Sidecar } from "../../src/wire/bodyTypes";

const BESIDE: Sidecar = {
  name: "work.agent.json",
  kind: "foreign",
  told: "",
  problem: "",
  saved: 1_700_000_000,
  size: 12_345,
  arrival: {
    sha256: "a".repeat(64),
    refused: "",
    format: "agent-kernel-session/1",
    id: "s9",
    title: "<img src=x onerror=alert(1)>",
    begins: "what is the mean?",
    turns: 3,
    branches: 1,
    messages: 9,
    media: 2,
    media_bytes: 2_500_000,
    files: 0,
    left_out: { "hidden messages": 2 },
    models: ["scripted"],
    updated: 1_700_000_000,
  },
};

let number = 0;

beforeEach(() => {
  number += 1;
});

function fresh(beside: Partial<Sidecar> = {}): Sidecar {
  const arrival = BESIDE.arrival && { ...BESIDE.arrival, sha256: String(number).padStart(64, "0") };
  return { ...BESIDE, arrival, ...beside };
}

async function show(beside: Sidecar, post = vi.fn(() => Promise.resolve({}))) {
  const bind = vi.fn(() => Promise.resolve());
  const request = vi.fn((method: string, path: string, body?: unknown) =>
    method === "GET" ? Promise.resolve(beside) : (post as (...given: unknown[]) => Promise<unknown>)(path, body),
  );
  const bound = signal({ path: "work.ipynb", kernel: "k1", kernelName: "Python", kernelState: "idle" });
  const conversation = { session: signal(null), running: signal([]), bind };
  const around = {
    conversation: conversation as unknown as Conversation,
    host: { transport: { request }, notebook: { bound } } as unknown as PanelHost,
  };
  await act(async () => {
    render(
      <PanelContext.Provider value={around}>
        <SidecarCards />
      </PanelContext.Provider>,
      place,
    );
    await Promise.resolve();
  });
  return { bind, post, request };
}

async function press(name: string) {
  const button = [...place.querySelectorAll("button")].find((one) => one.textContent === name);
  expect(button, name).toBeDefined();
  await act(async () => {
    button?.click();
    await new Promise((done) => setTimeout(done));
  });
}

test("what comes in is shown before it does, as text", async () => {
  const { request } = await show(fresh());
  expect(request.mock.calls[0]?.[1]).toBe("beside?path=work.ipynb");
  expect(place.textContent).toContain("Imported text is not trusted");
  expect(place.textContent).not.toContain("what is the mean?");
  await press("Preview");
  const facts = [...place.querySelectorAll("dl > div")].map((one) =>
    [...one.children].map((part) => part.textContent).join(": "),
  );
  expect(facts).toEqual(
    expect.arrayContaining([
      "begins: what is the mean?",
      "models: scripted",
      "messages: 9 on 1 branch",
      "pictures: 2, 2.5 MB",
      "size: 12 kB",
      "left out: 2 hidden messages",
    ]),
  );
  expect(place.querySelector("img")).toBeNull();
});

test("Import brings in exactly what was shown, and the panel goes on with it", async () => {
  const beside = fresh();
  const { post, bind } = await show(beside);
  await press("Import");
  expect(post).toHaveBeenCalledWith("beside?path=work.ipynb", { sha256: beside.arrival?.sha256 });
  expect(bind).toHaveBeenCalledWith("k1", "work.ipynb");
});

test("a refusal is told, and it can be tried again", async () => {
  const refusal = vi.fn(() => Promise.reject(new ApiError(409, { code: "conflict", message: "It has changed." })));
  const { bind } = await show(fresh(), refusal);
  await press("Import");
  expect(place.querySelector("[role=alert]")?.textContent).toBe("It has changed.");
  expect(bind).not.toHaveBeenCalled();
  await press("Import");
  expect(refusal).toHaveBeenCalledTimes(2);
});

test("Not now stays until the page is closed", async () => {
  const beside = fresh();
  await show(beside);
  await press("Not now");
  expect(place.querySelector(".ak-arrival")).toBeNull();
  render(null, place);
  await show(beside);
  expect(place.querySelector(".ak-arrival")).toBeNull();
});

test("a conversation of one's own says when it was saved, or why it was not", async () => {
  await show(fresh({ kind: "own", arrival: null }));
  expect(place.querySelector(".ak-saved")?.textContent).toMatch(/^Saved .*2023.* in work\.agent\.json$/);
  render(null, place);
  await show(fresh({ kind: "own", arrival: null, problem: "The disk is full." }));
  expect(place.querySelector("[role=status]")?.textContent).toBe("The disk is full.");
});

test("what can not come in says why and offers no import", async () => {
  const beside = fresh();
  if (beside.arrival) beside.arrival = { ...beside.arrival, refused: "messages[0].role: there is no role root" };
  await show(beside);
  expect(place.textContent).toContain("It cannot be imported: messages[0].role");
  expect([...place.querySelectorAll("button")].map((one) => one.textContent)).toEqual(["Not now"]);
});
