import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test } from "vitest";
import { Model } from "../../src/view/Model";
import { StateCardList } from "../../src/view/StateCardList";
import type { Model as Offer, SuitableModel } from "../../src/wire/schema";
import { Desked } from "./desked";

const OFFERED = { licence: "Apache-2.0", publisher: "Qwen", source: "huggingface.co" };
const SMALL: Offer = { ...OFFERED, name: "scripted", title: "Coder 0.5B", state: "ready" };
const LARGE: Offer = { ...OFFERED, name: "coder-7b", title: "Coder 7B", state: "missing", download_bytes: 8.1e9 };

const suits = (name: string, memory: number, speed: number | null): SuitableModel => ({
  name,
  memory_bytes: memory,
  fits: true,
  fit_reason: "it fits",
  tokens_per_s: speed,
  speed_basis: speed ? "measured" : "unknown",
  speed_note: "",
});

let shell: Desked;
beforeEach(async () => {
  localStorage.clear();
  shell = new Desked();
  shell.server.offered = [SMALL, LARGE];
  shell.server.recommendation = {
    machine: { memory_bytes: 32e9, available_bytes: 20e9, cores: 8, gpus: [] },
    recommended: "coder-7b",
    models: [suits("scripted", 2e9, 31.4), suits("coder-7b", 17e9, null)],
  };
  await shell.conversation.bind("k", "rain.ipynb");
  await shell.server.settled();
});
afterEach(() => shell.close());

test("the model in use is shown with its memory and its measured speed", async () => {
  await shell.show(<Model />);
  const facts = shell.find("[aria-label='The model in use']").textContent;
  expect(facts).toContain("2.0 GB");
  expect(facts).toContain("31 tokens per second, measured here");
});

test("a better model is downloaded only after a confirmation with its size and source, then one click switches", async () => {
  await shell.show(<Model />);
  const better = () => shell.find("[aria-label='A model that suits this machine better']");
  await shell.press("Download 8.1 GB");
  expect(better().textContent).toContain("Download 8.1 GB of Coder 7B from huggingface.co");
  expect(shell.desk.engine.pulling.value).toBeNull();
  await shell.press("Not now");
  await shell.press("Download 8.1 GB");
  shell.server.offered = [SMALL, { ...LARGE, state: "ready" }];
  shell.server.pull = [{ stage: "done" }];
  await shell.press("Download it");
  await shell.server.settled();
  await shell.press("Use coder-7b");
  expect(shell.server.asked("PUT", "engine?kernel=k")).toBe(1);
});

test("users who share a server see its models, without buttons that it would refuse", async () => {
  shell.server.mayChange = false;
  shell.server.offered = [{ ...SMALL, state: "missing", download_bytes: 5e8 }, LARGE];
  await shell.show(<Model />);
  const buttons = () => [...shell.page.querySelectorAll("button")].map((button) => button.textContent);
  expect(shell.page.textContent).toContain("Coder 7B");
  expect(shell.page.textContent).toContain("An administrator of this server chooses and downloads its models.");
  expect(buttons()).toEqual([]);
  await shell.show(<StateCardList />);
  expect(shell.page.textContent).toContain("Coder 0.5B is not on this machine");
  expect(buttons()).not.toContain("Choose another model");
});

test("a larger model is mentioned once, after an answer, and never again in this browser", async () => {
  const words = "This machine can run Coder 7B";
  await shell.show(<StateCardList />);
  await act(() => shell.server.settled());
  expect(shell.page.textContent).toContain(words);
  await shell.press("Dismiss");
  expect(shell.page.textContent).not.toContain(words);
  const later = new Desked();
  later.server.offered = shell.server.offered;
  later.server.recommendation = shell.server.recommendation;
  await later.conversation.bind("k", "rain.ipynb");
  await later.show(<StateCardList />);
  await act(() => later.server.settled());
  expect(later.page.textContent).not.toContain(words);
  later.close();
});
