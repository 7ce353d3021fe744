import { afterEach, expect, test, vi } from "vitest";
import { CommTransport } from "../../src/transport/comm";
import { randomId } from "../../src/transport/randomId";

afterEach(() => {
  vi.unstubAllGlobals();
});

test("a page without TLS, whose crypto is smaller, has names and a way through the kernel too", () => {
  const getRandomValues = crypto.getRandomValues.bind(crypto);
  vi.stubGlobal("crypto", { getRandomValues });
  const names = new Set(Array.from({ length: 100 }, randomId));
  expect(names.size).toBe(100);
  for (const name of names) expect(name).toMatch(/^[0-9a-f]{32}$/);
  const said: object[] = [];
  const transport = new CommTransport({
    send: (content) => said.push(content as object),
    on: () => undefined,
    off: () => undefined,
  });
  transport.close();
  expect(said).toHaveLength(1);
});
