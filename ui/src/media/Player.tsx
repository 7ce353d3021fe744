/** A film with play, pause and single steps. It starts paused if the user prefers reduced motion, and pauses out of
 * view. */
import { useEffect, useRef, useState } from "preact/hooks";
import { IconButton } from "../markdown/Icon";
import type { Film } from "./film";
import { useNear } from "../markdown/useNear";
import { trans } from "../translation/translation";

export function Player({ film, alt }: { film: Film; alt: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [number, setNumber] = useState(0);
  const [plays, setPlays] = useState(() => !prefersStill());
  const { now } = useNear(canvas);
  useEffect(() => {
    let current = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const next = (ms: number) => {
      if (current && plays && now) timer = setTimeout(() => setNumber((number + 1) % film.count), ms);
    };
    film.frame(number).then(
      (frame) => {
        if (current && canvas.current) draw(canvas.current, frame.image, frame.width, frame.height);
        frame.close();
        next(frame.ms);
      },
      () => current && setPlays(false),
    );
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [film, number, plays, now]);
  const step = (by: number) => {
    setPlays(false);
    setNumber((number + by + film.count) % film.count);
  };
  return (
    <div class="ak-player" role="group" aria-label={trans.__("Animation: %1", alt)}>
      <canvas ref={canvas} role="img" aria-label={alt} width={320} height={240} />
      <div class="ak-media-bar">
        <IconButton icon="previous" label={trans.__("Previous frame")} onClick={() => step(-1)} />
        <IconButton
          icon={plays ? "pause" : "play"}
          label={plays ? trans.__("Pause") : trans.__("Play")}
          onClick={() => setPlays(!plays)}
        />
        <IconButton icon="next" label={trans.__("Next frame")} onClick={() => step(1)} />
        <span>
          {number + 1} / {film.count}
        </span>
      </div>
    </div>
  );
}

/** For browsers that cannot decode single frames: shows the animated image, or its first frame while it is paused. */
export function Still({ address, alt }: { address: string; alt: string }) {
  const [plays, setPlays] = useState(() => !prefersStill());
  const picture = useRef<HTMLImageElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const freeze = () => {
    const image = picture.current;
    if (!plays && image?.complete && canvas.current) {
      draw(canvas.current, image, image.naturalWidth, image.naturalHeight);
    }
  };
  useEffect(freeze, [plays]);
  return (
    <div class="ak-player" role="group" aria-label={trans.__("Animation: %1", alt)}>
      <img ref={picture} src={address} alt={alt} hidden={!plays} onLoad={freeze} />
      <canvas ref={canvas} role="img" aria-label={alt} hidden={plays} />
      <div class="ak-media-bar">
        <IconButton
          icon={plays ? "pause" : "play"}
          label={plays ? trans.__("Pause") : trans.__("Play")}
          onClick={() => setPlays(!plays)}
        />
      </div>
    </div>
  );
}

function draw(canvas: HTMLCanvasElement, image: CanvasImageSource, width: number, height: number): void {
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d")?.drawImage(image, 0, 0);
}

function prefersStill(): boolean {
  return typeof matchMedia === "function" && matchMedia("(prefers-reduced-motion: reduce)").matches;
}
