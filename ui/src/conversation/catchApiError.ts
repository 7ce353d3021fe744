/** Run work that the server may refuse. An ApiError goes into `failure`, which the panel shows; any other error is a
 * defect and is thrown. */
import type { Signal } from "@preact/signals";
import { ApiError } from "../transport/transport";

type Work = () => Promise<void>;

export const catchApiError = (failure: Signal<ApiError | null>, work: Work): Promise<void> =>
  catchApiErrorWhile(() => true, failure, work);

/** Like `catchApiError`, but ignores the error if `still()` is false when the error occurs, for example because the
 * panel shows another notebook by then. */
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
