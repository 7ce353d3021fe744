import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig } from "vitest/config";

const TESTS = join(import.meta.dirname, "tests");

/**
 * The files that replace a module, by `vi.mock`. Each needs modules that no other file has loaded. All other files share
 * the modules and the page of their process: to load both for every file takes four fifths of the time of all tests.
 */
const isolated = readdirSync(TESTS, { recursive: true, encoding: "utf8" })
  .filter((name) => /\.test\.tsx?$/.test(name) && readFileSync(join(TESTS, name), "utf8").includes("vi.mock("))
  .map((name) => `tests/${name.replaceAll("\\", "/")}`);

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  test: {
    environment: "jsdom",
    setupFiles: ["tests/setup.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    projects: [
      {
        extends: true,
        test: { name: "shared", isolate: false, include: ["tests/**/*.test.{ts,tsx}"], exclude: isolated },
      },
      { extends: true, test: { name: "isolated", include: isolated } },
    ],
  },
});
