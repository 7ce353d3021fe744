/** An SVG, sanitised and shown as an image: inside an image no scripts run and nothing is loaded. */
import { useMemo } from "preact/hooks";
import { sanitise } from "../markdown/sanitise";
import { Picture } from "./Picture";
import { trans } from "../translation/translation";

export function Svg({ text, alt }: { text: string; alt: string }) {
  const drawing = useMemo(() => svgBlob(text), [text]);
  if (!drawing) return <p class="ak-media-note">{trans.__("This drawing cannot be shown: %1", alt)}</p>;
  return <Picture blob={drawing} mime="image/svg+xml" alt={alt} />;
}

function svgBlob(text: string): Blob | null {
  const drawing = clean(text);
  return drawing ? new Blob([drawing]) : null;
}

/** Empty if the text is not an SVG. */
export function clean(text: string): string {
  const root = sanitise(text, "svg").querySelector("svg");
  return root ? new XMLSerializer().serializeToString(root) : "";
}
