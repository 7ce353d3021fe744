import type { ReadonlySignal } from "@preact/signals";

/** Run the surrounding effect or component again when one of the signals changes. Returns their values. */
export const observe = (...signals: readonly ReadonlySignal<unknown>[]): unknown[] => signals.map((one) => one.value);
