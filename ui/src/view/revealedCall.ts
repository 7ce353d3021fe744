/** The call that somebody was sent to, such as from a number that it computed: its row opens, the line flashes. */
import { signal } from "@preact/signals";

/** `line` counts from 1 in what the call printed; 0: no line. */
export const revealedCall = signal<{ call: string; line: number } | null>(null);

export function revealCall(call: string, line = 0): void {
  revealedCall.value = { call, line };
}
