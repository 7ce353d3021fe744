/** Gives every test time on a machine that is busy with other tests. What never happens fails all the same, later. */

import { vi } from "vitest";

const WITHIN_MS = 20_000;

const waitFor = vi.waitFor.bind(vi);

vi.waitFor = (holds, options = { timeout: WITHIN_MS }) => waitFor(holds, options);
