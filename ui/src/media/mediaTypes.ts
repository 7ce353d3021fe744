/** How each media type is rendered, and the name of a saved file. */
import { formatBytes } from "../turn/labels";

export type Look = "picture" | "svg" | "table" | "html" | "chart" | "json" | "markdown" | "latex" | "text" | "unknown";

const PICTURES = new Map(
  Object.entries({
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
  }),
);
const OTHERS = new Map(
  Object.entries<[Look, string]>({
    "image/svg+xml": ["svg", "svg"],
    "application/vnd.agent-kernel.table+json": ["table", "json"],
    "text/html": ["html", "html"],
    "application/vnd.plotly.v1+json": ["chart", "json"],
    "application/json": ["json", "json"],
    "application/geo+json": ["json", "geojson"],
    "text/markdown": ["markdown", "md"],
    "text/plain": ["text", "txt"],
    "text/csv": ["text", "csv"],
    "text/latex": ["latex", "tex"],
  }),
);
const VEGA = /^application\/vnd\.vega(?:lite)?\.v\d+\+json$/;

export function lookOf(mime: string): Look {
  if (PICTURES.has(mime)) return "picture";
  if (VEGA.test(mime)) return "chart";
  return OTHERS.get(mime)?.[0] ?? "unknown";
}

export function fileName(mime: string, hash: string): string {
  const suffix = PICTURES.get(mime) ?? (VEGA.test(mime) ? "json" : (OTHERS.get(mime)?.[1] ?? "bin"));
  return `${lookOf(mime)}-${hash.slice(0, 8) || "new"}.${suffix}`;
}

/** A description of a medium by its type and size, used as its alternative text. */
export function describe(mime: string, size: number): string {
  const kind = mime.replace(/^(?:image|application|text)\//, "").replace(/^vnd\./, "");
  return size > 0 ? `${kind}, ${formatBytes(size)}` : kind;
}

/** Whether an image has more than one frame: a GIF with two images, or a PNG or WebP that declares an animation. */
export function isAnimated(bytes: Uint8Array): boolean {
  const head = String.fromCharCode(...bytes.subarray(0, 4));
  if (head === "GIF8") return gifFrames(bytes) > 1;
  const start = String.fromCharCode(...bytes.subarray(0, 200));
  if (head === "RIFF") return start.includes("ANIM");
  return start.includes("acTL");
}

/** Count the images of a GIF, at most to 2. The function reads the file block by block, because the bytes within a
 * block may look like the start of an image. */
function gifFrames(bytes: Uint8Array): number {
  const flags = bytes[10] ?? 0;
  let at = 13 + (flags & 0x80 ? 3 << ((flags & 7) + 1) : 0);
  let found = 0;
  while (at < bytes.length && found < 2) {
    const block = bytes[at];
    if (block === 0x21) {
      at += 2;
    } else if (block === 0x2c) {
      found++;
      const own = bytes[at + 9] ?? 0;
      at += 11 + (own & 0x80 ? 3 << ((own & 7) + 1) : 0);
    } else {
      break;
    }
    while (bytes[at]) at += (bytes[at] ?? 0) + 1;
    at++;
  }
  return found;
}
