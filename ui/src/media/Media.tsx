/** Media of a call or of a prompt, rendered by type and fetched when scrolled into view. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Markdown } from "../markdown/Markdown";
import { IconButton } from "../markdown/IconButton";
import type { Medium } from "../wire/events";
import { BUNDLE } from "./bundle";
import { Chart } from "./Chart";
import { JsonTree } from "./JsonTree";
import { describe, fileName, lookOf } from "./mediaTypes";
import { useBytes, useNear } from "./useBytes";
import "./media.css";
import { Picture } from "./Picture";
import { saveFile } from "./saveFile";
import { clean, Svg } from "./Svg";
import { HtmlTable, isRows, Table } from "./Table";
import { trans } from "../translation/translation";

const MAX_TEXT = 100_000;
const MAX_READ = 8 << 20;

interface Shown {
  medium: Medium;
  session: string;
  /** Alternative text. */
  alt?: string;
}

export function Media({ medium, session, alt = "" }: Shown) {
  const place = useRef<HTMLElement>(null);
  const loaded = useBytes(medium, session, useNear(place).ever);
  const mime = loaded.state === "there" && medium.mime === BUNDLE ? loaded.blob.type : medium.mime;
  const label = alt || describe(mime, medium.size ?? 0);
  return (
    <figure class="ak-media" data-mime={mime} ref={place} aria-busy={loaded.state === "waiting"}>
      {loaded.state === "waiting" && <div class="ak-media-space">{label}</div>}
      {loaded.state === "failed" && (
        <p class="ak-media-note">
          {label}: {loaded.reason}
        </p>
      )}
      {loaded.state === "there" && (
        <>
          <Bytes blob={loaded.blob} mime={mime} alt={label} />
          <div class="ak-media-bar ak-media-save">
            <IconButton
              icon="save"
              label={trans.__("Save as a file")}
              onClick={() => void download(loaded.blob, { ...medium, mime })}
            />
          </div>
        </>
      )}
    </figure>
  );
}

function Bytes({ blob, mime, alt }: { blob: Blob; mime: string; alt: string }) {
  const look = lookOf(mime);
  const text = useText(look === "picture" || look === "unknown" || blob.size > MAX_READ ? null : blob);
  if (look === "picture") return <Picture blob={blob} mime={mime} alt={alt} />;
  if (text === null) return <p class="ak-media-note">{alt}</p>;
  switch (look) {
    case "svg":
      return <Svg text={text} alt={alt} />;
    case "html":
      return <HtmlTable html={text} label={alt} />;
    case "markdown":
      return <Markdown text={text} done={true} />;
    case "table":
    case "chart":
    case "json":
      return <Structured look={look} mime={mime} text={text} alt={alt} />;
    default:
      return <pre class="ak-media-text">{text.slice(0, MAX_TEXT)}</pre>;
  }
}

function Structured({ look, mime, text, alt }: { look: string; mime: string; text: string; alt: string }) {
  const value = useMemo(() => read(text), [text]);
  if (value === undefined) return <pre class="ak-media-text">{text.slice(0, MAX_TEXT)}</pre>;
  if (look === "table" && isRows(value)) return <Table rows={value} label={alt} />;
  if (look === "chart") return <Chart mime={mime} text={text} value={value} alt={alt} />;
  return <JsonTree value={value} />;
}

function read(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

function useText(blob: Blob | null): string | null {
  const [text, setText] = useState<string | null>(null);
  useEffect(() => {
    let current = true;
    void blob?.text().then((read) => current && setText(read));
    return () => {
      current = false;
    };
  }, [blob]);
  return text;
}

/** Save media as a file. Types that a browser would execute when the file is opened are saved as they are shown here.
 */
async function download(blob: Blob, { mime, hash = "" }: Medium): Promise<void> {
  const look = lookOf(mime);
  const kept = look === "svg" ? new Blob([clean(await blob.text())]) : blob;
  const name = look === "html" ? fileName("text/plain", hash) : fileName(mime, hash);
  saveFile(new Blob([kept], { type: "application/octet-stream" }), name);
}
