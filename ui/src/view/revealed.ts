/** The call that somebody was sent to, such as from a number that it computed: its row opens, the line flashes. */
import { signal } from "@preact/signals";

/** `line` counts from 1 in what the call printed; 0: no line. */
export const revealed = signal<{ call: string; line: number } | null>(null);

export function reveal(call: string, line = 0): void {
  revealed.value = { call, line };
}
