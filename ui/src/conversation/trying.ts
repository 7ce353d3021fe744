/** Work that the server may refuse: why it did is shown, anything else is a mistake of ours and flies. */
import type { Signal } from "@preact/signals";
import { ApiError } from "../transport/transport";

export async function trying(failure: Signal<ApiError | null>, work: () => Promise<void>): Promise<void> {
  failure.value = null;
  try {
    await work();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    failure.value = error;
  }
}
