import { afterEach, expect, test, vi } from "vitest";
import { saveFile } from "../../src/media/saveFile";

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

test("a file goes out under its name, and its bytes are let go of some time later", () => {
  vi.useFakeTimers();
  const revoked = vi.fn();
  vi.stubGlobal("URL", { createObjectURL: () => "blob:1", revokeObjectURL: revoked });
  const saved: [string, string][] = [];
  vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(function (this: HTMLAnchorElement) {
    saved.push([this.href, this.download]);
  });
  saveFile(new Blob(["x"]), "rain.csv");
  expect(saved).toEqual([["blob:1", "rain.csv"]]);
  expect(revoked).not.toHaveBeenCalled();
  vi.runAllTimers();
  expect(revoked).toHaveBeenCalledExactlyOnceWith("blob:1");
});
