/** Work that the server may refuse: why it did is shown, anything else is a mistake of ours and flies. */
import type { Signal } from "@preact/signals";
import { ApiError } from "../transport/transport";

type Work = () => Promise<void>;

export const catchApiError = (failure: Signal<ApiError | null>, work: Work): Promise<void> =>
  catchApiErrorWhile(() => true, failure, work);

/** What is refused when nobody looks at it any more is not shown. */
export async function catchApiErrorWhile(
  still: () => boolean,
  failure: Signal<ApiError | null>,
  work: Work,
): Promise<void> {
  failure.value = null;
  try {
    await work();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    if (still()) failure.value = error;
  }
}
