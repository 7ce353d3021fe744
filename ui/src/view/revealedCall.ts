/** The call that the user was sent to, such as from a number that it computed: its row opens and the line is
 * highlighted. */
import { signal } from "@preact/signals";

/** `line` counts from 1 in the output of the call; 0 for none. */
export const revealedCall = signal<{ call: string; line: number } | null>(null);

export function revealCall(call: string, line = 0): void {
  revealedCall.value = { call, line };
}
