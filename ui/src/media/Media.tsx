/** Media of a call or of a prompt, rendered by type and fetched when scrolled into view. */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState, useContext } from "preact/hooks";
import { Markdown } from "../markdown/Markdown";
import { IconButton, Icon } from "../markdown/Icon";
import { useShortMessage } from "../markdown/useShortMessage";
import type { Medium } from "../wire/events";
import { BUNDLE } from "./bundle";
import { JsonTree } from "./JsonTree";
import { describe, fileName, type Look, lookOf } from "./mediaTypes";
import { useNear } from "../markdown/useNear";
import { useBytes } from "./useBytes";
import "./media.css";
import { Picture, clean, Svg } from "./Picture";
import { saveFile } from "./saveFile";
import { isRows } from "./rows";
import { HtmlTable, RowsTable } from "./Table";
import { trans } from "../translation/translation";
import { PanelContext } from "../conversation/panelContext";
import { copy } from "../markdown/clipboard";
import { errorMessage } from "../transport/transport";

const MAX_INSERTED = 200_000;

const MAX_TEXT = 100_000;
const MAX_READ = 8 << 20;

interface Shown {
  medium: Medium;
  session: string;
  /** Alternative text. */
  alt?: string;
  /** The code that made the medium; empty if it is not known. */
  code?: string;
}

export function Media({ medium, session, alt = "", code = "" }: Shown) {
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
        <Bytes
          blob={loaded.blob}
          mime={mime}
          alt={label}
          tools={<Tools code={code} onSave={() => void download(loaded.blob, { ...medium, mime })} />}
        />
      )}
    </figure>
  );
}

/** The buttons of a medium, visible while the mouse or the focus is at the medium. */
function Tools({ code, onSave }: { code: string; onSave: () => void }) {
  const [message, say] = useShortMessage();
  return (
    <>
      <span class="ak-media-tools">
        {code && <CopyAsCell code={code} say={say} />}
        <IconButton icon="save" label={trans.__("Save as a file")} onClick={onSave} />
      </span>
      <span role="status">{message}</span>
    </>
  );
}

interface Loaded {
  blob: Blob;
  mime: string;
  alt: string;
  /** The buttons of the medium. A table shows them beside the buttons for its pages. */
  tools: ComponentChildren;
}

function Bytes({ blob, mime, alt, tools }: Loaded) {
  const look = lookOf(mime);
  const text = useText(look === "picture" || look === "unknown" || blob.size > MAX_READ ? null : blob);
  const value = useMemo(() => (look === "table" && text !== null ? read(text) : undefined), [look, text]);
  if (look === "html" && text !== null) return <HtmlTable html={text} label={alt} tools={tools} />;
  if (isRows(value)) return <RowsTable rows={value} label={alt} tools={tools} />;
  return (
    <>
      {look === "picture" ? (
        <Picture blob={blob} mime={mime} alt={alt} />
      ) : text === null ? (
        <p class="ak-media-note">{alt}</p>
      ) : (
        <Text look={look} mime={mime} text={text} alt={alt} />
      )}
      <div class="ak-media-bar">{tools}</div>
    </>
  );
}

function Text({ look, mime, text, alt }: { look: Look; mime: string; text: string; alt: string }) {
  const plain = <pre class="ak-media-text">{text.slice(0, MAX_TEXT)}</pre>;
  switch (look) {
    case "svg":
      return <Svg text={text} alt={alt} />;
    case "markdown":
      return <Markdown text={text} done={true} />;
    case "latex":
      // Text between dollar signs is a formula. Other text is a document, or needs LaTeX packages that the page lacks.
      return text.trim().startsWith("$") ? <Markdown text={text} done={true} /> : plain;
    case "table":
    case "chart":
    case "json":
      return <Structured look={look} mime={mime} text={text} alt={alt} />;
    default:
      return plain;
  }
}

function Structured({ look, mime, text, alt }: { look: Look; mime: string; text: string; alt: string }) {
  const value = useMemo(() => read(text), [text]);
  if (value === undefined) return <pre class="ak-media-text">{text.slice(0, MAX_TEXT)}</pre>;
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

/** Save a medium as a file. Files of types that a browser would execute when they are opened are changed first: an SVG
 * is sanitised, and HTML is saved as plain text. */
async function download(blob: Blob, { mime, hash = "" }: Medium): Promise<void> {
  const look = lookOf(mime);
  const kept = look === "svg" ? new Blob([clean(await blob.text())]) : blob;
  const name = look === "html" ? fileName("text/plain", hash) : fileName(mime, hash);
  saveFile(new Blob([kept], { type: "application/octet-stream" }), name);
}

/** A button that puts the code of a table or a plot into the notebook. `say` shows the user whether the code was
 * inserted or copied. */
export function CopyAsCell({ code, say }: { code: string; say: (text: string) => void }) {
  const notebook = useContext(PanelContext)?.host.notebook;
  const insert = async (): Promise<string> => {
    // Where the host cannot change cells, such as in a widget, there is no notebook for this button either.
    if (!notebook?.bound.value || !notebook.changes) {
      await copy(code);
      return trans.__("There is no notebook here, so the code was copied.");
    }
    notebook.reveal(await notebook.insert(code, "below"));
    return trans.__("Inserted");
  };
  const attempt = () => insert().then(say, (error: unknown) => say(errorMessage(error)));
  return <IconButton icon="cell" label={trans.__("Copy as cell")} onClick={() => void attempt()} />;
}

/** A chart that arrived as data (Plotly or Vega). The panel does not draw it, but offers to insert a cell into the
 * notebook that does. */
export function Chart({ mime, text, value, alt }: { mime: string; text: string; value: unknown; alt: string }) {
  const notebook = useContext(PanelContext)?.host.notebook;
  const [said, say] = useState("");
  const open = () => {
    notebook?.insert(cellOf(mime, text), "below").then(
      () => say(trans.__("Run the new cell to see it.")),
      (error: unknown) => say(errorMessage(error)),
    );
  };
  return (
    <div class="ak-chart">
      <p>
        {mime.includes("plotly") ? trans.__("A Plotly chart") : trans.__("A Vega chart")}: {alt}
      </p>
      {notebook?.bound.value && text.length <= MAX_INSERTED && (
        <button type="button" class="ak-more" onClick={open}>
          <Icon name="notebook" /> {trans.__("Open in the notebook")}
        </button>
      )}
      <span role="status">{said}</span>
      <JsonTree name="data" value={value} />
    </div>
  );
}

/** Python code that displays the chart. A quoted JSON string is a valid Python string too, whatever it contains. */
export function cellOf(mime: string, text: string): string {
  // Editors break lines at U+2028 and U+2029, which JSON allows in strings: escape both.
  const quoted = JSON.stringify(JSON.stringify(JSON.parse(text)))
    .replaceAll("\u2028", "\\u2028")
    .replaceAll("\u2029", "\\u2029");
  return `import json\n\nfrom IPython.display import display\n\ndisplay({"${mime}": json.loads(${quoted})}, raw=True)`;
}
