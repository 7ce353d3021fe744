import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, test } from "vitest";
import { nameOf } from "../../src/conversation/modelServers";
import { Model } from "../../src/view/Model";
import { Desked } from "./desked";

const KEY = "sk-secret";
const URL_ = "https://models.example.com/v1";

let shell: Desked;
beforeEach(() => {
  shell = new Desked();
});
afterEach(() => shell.close());

function type(selector: string, value: string): Promise<void> {
  return act(() => {
    const field = shell.find(selector) as HTMLInputElement;
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    return Promise.resolve();
  });
}

test("a server is tested, one of its models chosen, and saved; the key stays nowhere in the page", async () => {
  shell.server.probeReport = {
    host: "models.example.com",
    local: false,
    models: ["a", "b"],
    findings: [],
    missing: [],
  };
  await shell.show(<Model />);
  await act(() => shell.server.settled());
  await shell.press("Add a model server...");
  await type("[type=url]", URL_);
  await type("[type=password]", KEY);
  await shell.press("Test");
  expect(shell.page.textContent).toContain("models.example.com is another machine: conversations leave this one.");
  await shell.press("b");
  const finding = { feature: "tools", state: "lacks", detail: "no call came" } as const;
  shell.server.probeReport = { ...shell.server.probeReport, model: "b", findings: [finding], missing: ["tools"] };
  await shell.press("Test");
  expect(shell.page.textContent).toContain("b cannot serve the agent: it lacks tools.");
  await shell.press("Save");
  expect(shell.server.serverBodies).toEqual([
    { url: URL_, model: "", key: KEY },
    { url: URL_, model: "b", key: KEY },
    { url: URL_, model: "b", key: KEY },
  ]);
  expect(shell.page.textContent).toContain("models.example.com was added. Choose it above to use it.");
  expect(shell.page.textContent).toContain("Its key is in the keyring");
  expect(shell.page.querySelectorAll("li strong")).toHaveLength(1); // it is listed once
  const stored = [localStorage, sessionStorage].flatMap((storage) =>
    Array.from({ length: storage.length }, (_, at) => storage.getItem(storage.key(at) ?? "")),
  );
  expect([shell.page.innerHTML, ...stored].join()).not.toContain(KEY);
  expect(shell.server.asked("PUT", "engine?")).toBe(0);
  await shell.press("Remove models.example.com");
  expect(shell.page.textContent).not.toContain("keyring");
});

test("who may not see the servers gets no form", async () => {
  const refuse = shell.server.hold("GET model_servers", true);
  await shell.show(<Model />);
  await act(refuse);
  expect(shell.page.textContent).toContain("On this machine");
  expect(shell.page.textContent).not.toContain("Add a model server");
});

test.each([
  ["http://localhost:8000/v1", "localhost-8000"],
  ["no address", ""],
])("%s is named %s", (url, name) => expect(nameOf(url)).toBe(name));

test("a server that does not answer is said once, not as a feature that is missing", async () => {
  const problem = "models.example.com asks for a key (HTTP 401).";
  shell.server.probeReport = {
    host: "models.example.com",
    local: false,
    models: [],
    problem,
    findings: [{ feature: "answers", state: "lacks", detail: problem }],
    missing: ["answers"],
  };
  await shell.show(<Model />);
  await act(() => shell.server.settled());
  await shell.press("Add a model server...");
  await type("[type=url]", URL_);
  await shell.press("Test");
  expect(shell.page.textContent.split(problem)).toHaveLength(2);
  expect(shell.page.textContent).not.toContain("answers");
});

test("the form takes the focus, and returns it to its button", async () => {
  await shell.show(<Model />);
  await act(() => shell.server.settled());
  await shell.press("Add a model server...");
  expect(document.activeElement).toBe(shell.find("[type=url]"));
  await shell.press("Cancel");
  await act(() => new Promise<void>((done) => requestAnimationFrame(() => done())));
  expect(document.activeElement?.textContent).toBe("Add a model server...");
});
