/** The frames of an animated image, or of several images, one at a time. */

interface Frame {
  image: CanvasImageSource;
  width: number;
  height: number;
  /** Duration of the frame in milliseconds. */
  ms: number;
  close(): void;
}

export interface Film {
  count: number;
  /** `number` counts from 0. Rejects if the frame cannot be decoded. */
  frame(number: number): Promise<Frame>;
  close(): void;
}

const PACE_MS = 200;
const SLOWEST_MS = 20;
const MAX_FRAMES = 2_000;

/** The frames of an animated image. Null for a still image, and if the browser cannot decode single frames. */
export async function filmOf(blob: Blob, mime: string): Promise<Film | null> {
  if (typeof ImageDecoder === "undefined" || !(await ImageDecoder.isTypeSupported(mime))) return null;
  const decoder = new ImageDecoder({ type: mime, data: await blob.arrayBuffer(), preferAnimation: true });
  await decoder.tracks.ready;
  await decoder.completed;
  const count = decoder.tracks.selectedTrack?.frameCount ?? 1;
  if (count < 2) {
    decoder.close();
    return null;
  }
  return {
    count: Math.min(count, MAX_FRAMES),
    async frame(frameIndex) {
      const { image } = await decoder.decode({ frameIndex });
      const ms = Math.max(SLOWEST_MS, (image.duration ?? 0) / 1_000 || PACE_MS);
      return { image, width: image.displayWidth, height: image.displayHeight, ms, close: () => image.close() };
    },
    close: () => decoder.close(),
  };
}

export function filmOfPictures(pictures: readonly Blob[]): Film {
  return {
    count: pictures.length,
    async frame(number) {
      const image = await createImageBitmap(pictures[number] ?? new Blob());
      return { image, width: image.width, height: image.height, ms: PACE_MS, close: () => image.close() };
    },
    close: () => undefined,
  };
}
