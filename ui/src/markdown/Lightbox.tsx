/** A picture that a click enlarges. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { IconButton } from "./Icon";
import { trans } from "../translation/translation";

interface Picture {
  address: string;
  alt: string;
}

/** A point of the picture, as fractions of its width and height. */
interface Point {
  x: number;
  y: number;
}

const CENTER: Point = { x: 0.5, y: 0.5 };

/** The picture as a button that enlarges it. `name` is the CSS class of the button. */
export function EnlargeButton({ address, alt, name, onError }: Picture & { name: string; onError?: () => void }) {
  const [large, setLarge] = useState(false);
  return (
    <>
      <button
        type="button"
        class={name}
        title={trans.__("Enlarge")}
        aria-label={trans.__("Enlarge: %1", alt)}
        onClick={() => setLarge(true)}
      >
        <img src={address} alt={alt} onError={onError} />
      </button>
      {large && <Lightbox address={address} alt={alt} onEnd={() => setLarge(false)} />}
    </>
  );
}

/** The picture over the whole window, until the user presses Escape, clicks beside it or closes it. It is shown as
 * large as fits, or in its actual size, one pixel of the picture for each pixel of the page. */
function Lightbox({ address, alt, onEnd }: Picture & { onEnd: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const view = useRef<HTMLDivElement>(null);
  const [shownAt, setShownAt] = useState<Point | null>(null);
  useLayoutEffect(() => dialog.current?.showModal(), []);
  useLayoutEffect(() => {
    if (shownAt && view.current) scrollTo(view.current, shownAt);
  }, [shownAt]);
  return (
    <dialog
      ref={dialog}
      class="ak-enlarged"
      aria-label={alt}
      onClose={onEnd}
      onKeyDown={(event) => event.stopPropagation()} // the notebook must not react to keys that are pressed here
      onClick={(event) => event.target === event.currentTarget && event.currentTarget.close()}
    >
      <div class="ak-media-bar">
        <span class="ak-enlarged-name">{alt}</span>
        <button type="button" class="ak-more" onClick={() => setShownAt(shownAt ? null : CENTER)}>
          {shownAt ? trans.__("Fit into the window") : trans.__("Actual size")}
        </button>
        <IconButton icon="close" label={trans.__("Close")} onClick={() => dialog.current?.close()} />
      </div>
      <div class={`ak-enlarged-view ${shownAt ? "ak-actual" : ""}`} ref={view} {...scrollable(shownAt !== null, alt)}>
        <img src={address} alt={alt} onClick={(event) => setShownAt(shownAt ? null : pointOf(event))} />
      </div>
    </dialog>
  );
}

/** A picture that is larger than the window gets the focus, so that the arrow keys can scroll it. */
const scrollable = (isLarge: boolean, label: string) =>
  isLarge ? { tabIndex: 0, role: "region" as const, "aria-label": label } : {};

function pointOf(event: MouseEvent): Point {
  const { left, top, width, height } = (event.currentTarget as HTMLElement).getBoundingClientRect();
  return { x: (event.clientX - left) / width, y: (event.clientY - top) / height };
}

function scrollTo(view: HTMLElement, { x, y }: Point): void {
  view.scrollLeft = x * view.scrollWidth - view.clientWidth / 2;
  view.scrollTop = y * view.scrollHeight - view.clientHeight / 2;
}
