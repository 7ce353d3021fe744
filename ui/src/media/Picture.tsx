/** An image from bytes; an animated one gets a player. Bytes of a type that is not listed are never shown as an image.
 */
import { useEffect, useMemo, useState } from "preact/hooks";
import { EnlargeButton } from "../markdown/Lightbox";
import { filmOf, type Film } from "./film";
import { isAnimated } from "./mediaTypes";
import { useAddress } from "./useBytes";
import { Player, Still } from "./Player";
import { trans } from "../translation/translation";
import { sanitise } from "../markdown/sanitise";

export function Picture({ blob, mime, alt }: { blob: Blob; mime: string; alt: string }) {
  const typed = useTyped(blob, mime);
  const address = useAddress(typed);
  const film = useFilm(typed, mime);
  const [broken, setBroken] = useState(false);
  if (broken) return <p class="ak-media-note">{trans.__("This picture cannot be shown: %1", alt)}</p>;
  if (!address || film === "unread") return null;
  if (film === "no frames") return <Still address={address} alt={alt} />;
  if (film) return <Player film={film} alt={alt} />;
  return <EnlargeButton address={address} alt={alt} name="ak-picture-button" onError={() => setBroken(true)} />;
}

/** The bytes with their MIME type, because the server returns them without a type. */
function useTyped(blob: Blob, mime: string): Blob {
  return useMemo(() => new Blob([blob], { type: mime }), [blob, mime]);
}

/** The frames of an animated image. "unread" while the image is read, null if it is not animated, "no frames" if the
 * browser cannot decode single frames. */
function useFilm(blob: Blob, mime: string): Film | null | "unread" | "no frames" {
  const [film, setFilm] = useState<Film | null | "unread" | "no frames">("unread");
  useEffect(() => {
    let current = true;
    let made: Film | null = null;
    const read = async () => {
      const moves = mime !== "image/svg+xml" && isAnimated(new Uint8Array(await blob.arrayBuffer()));
      made = moves ? await filmOf(blob, mime) : null;
      if (current) setFilm(moves ? (made ?? "no frames") : null);
      else made?.close();
    };
    read().catch(() => current && setFilm(null));
    return () => {
      current = false;
      made?.close();
    };
  }, [blob]);
  return film;
}

/** An SVG, sanitised and shown as an image: inside an image no scripts run and nothing is loaded. */
export function Svg({ text, alt }: { text: string; alt: string }) {
  const drawing = useMemo(() => svgBlob(text), [text]);
  if (!drawing) return <p class="ak-media-note">{trans.__("This drawing cannot be shown: %1", alt)}</p>;
  return <Picture blob={drawing} mime="image/svg+xml" alt={alt} />;
}

function svgBlob(text: string): Blob | null {
  const drawing = clean(text);
  return drawing ? new Blob([drawing]) : null;
}

/** The sanitised SVG as text; empty if the text is not an SVG. */
export function clean(text: string): string {
  const root = sanitise(text, "svg").querySelector("svg");
  return root ? new XMLSerializer().serializeToString(root) : "";
}
