/** The call that the panel shows to the user after a click elsewhere, such as on a number that the call computed: its
 * row opens and the line of its output is highlighted. */
import { signal } from "@preact/signals";

/** `line` is a line of the call's output, counted from 1; 0 for none. */
export const revealedCall = signal<{ call: string; line: number } | null>(null);

export function revealCall(call: string, line = 0): void {
  revealedCall.value = { call, line };
}
