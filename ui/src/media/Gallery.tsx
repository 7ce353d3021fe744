/** All media of one call. The user can play several images as a film. */
import { useContext, useEffect, useState } from "preact/hooks";
import { PanelContext } from "../conversation/panelContext";
import type { Medium } from "../wire/events";
import { acquireMedium } from "./bytes";
import { filmOfPictures, type Film } from "./film";
import { lookOf } from "./mediaTypes";
import { Media } from "./Media";
import { Player } from "./Player";
import { trans } from "../translation/translation";

const FILM_FROM = 3;

interface Shown {
  media: readonly Medium[];
  session: string;
  alt?: string;
  /** The code that made the media; empty if it is not known. */
  code?: string;
}

export function Gallery({ media, session, alt = "", code = "" }: Shown) {
  const pictures = media.filter((medium) => lookOf(medium.mime) === "picture");
  const [asFilm, setAsFilm] = useState(false);
  const many = pictures.length >= FILM_FROM && new Set(pictures.map((picture) => picture.mime)).size === 1;
  const single = asFilm ? media.filter((medium) => !pictures.includes(medium)) : media;
  return (
    <div class="ak-gallery">
      {many && (
        <button type="button" class="ak-more" aria-pressed={asFilm} onClick={() => setAsFilm(!asFilm)}>
          {asFilm
            ? trans.__("Show them as pictures")
            : trans.__("Play the %1 pictures as an animation", pictures.length)}
        </button>
      )}
      {asFilm && <Frames pictures={pictures} session={session} alt={alt || trans.__("Pictures of one call")} />}
      {single.map((medium, number) => (
        <Media
          key={`${medium.hash ?? "inline"}-${number}`}
          medium={medium}
          session={session}
          code={code}
          alt={alt && media.length > 1 ? trans.__("%1 (%2 of %3)", alt, number + 1, media.length) : alt}
        />
      ))}
    </div>
  );
}

function Frames({ pictures, session, alt }: { pictures: readonly Medium[]; session: string; alt: string }) {
  const transport = useContext(PanelContext)?.host.transport;
  const [film, setFilm] = useState<Film | null>(null);
  const names = pictures.map((picture) => picture.hash ?? "").join();
  useEffect(() => {
    if (!transport) return;
    const used = pictures.map((picture) => acquireMedium(transport, session, picture));
    let current = true;
    Promise.all(used.map((one) => one.blob)).then(
      (blobs) => current && setFilm(filmOfPictures(blobs)),
      () => undefined, // each image shows its own error
    );
    return () => {
      current = false;
      for (const one of used) one.end();
    };
  }, [transport, session, names]);
  return film ? <Player film={film} alt={alt} /> : <div class="ak-media-space">{alt}</div>;
}
