/**
 * Runs at the start of each file. Gives every test an element of the page, and time on a machine that is busy with other
 * tests: what never happens fails all the same, later. What a file leaves behind is removed after it, because the next
 * file may have the same page and the same modules (vitest.config.ts).
 */
import { afterAll, afterEach, beforeEach, vi } from "vitest";
import { addPlace, removePlace } from "./place";

const WITHIN_MS = 20_000;
const PATIENT = Symbol.for("vi.waitFor waits longer");

const waitFor = vi.waitFor.bind(vi);
if (!(PATIENT in vi)) {
  Object.assign(vi, { [PATIENT]: true });
  vi.waitFor = (holds, options = { timeout: WITHIN_MS }) => waitFor(holds, options);
}

if (typeof document !== "undefined") {
  beforeEach(addPlace);
  afterEach(removePlace);
}
afterAll(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
  if (typeof document === "undefined") return; // of a file that asks for no page
  document.body.replaceChildren();
  localStorage.clear();
  sessionStorage.clear();
});
