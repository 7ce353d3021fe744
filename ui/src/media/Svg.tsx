/** A drawing, reduced to what draws, and shown as a picture: in one, nothing runs and nothing is loaded. */
import { useMemo } from "preact/hooks";
import { sanitise } from "../markdown/sanitise";
import { Picture } from "./Picture";

export function Svg({ text, alt }: { text: string; alt: string }) {
  const drawing = useMemo(() => drawn(text), [text]);
  if (!drawing) return <p class="ak-media-note">This drawing can not be shown: {alt}</p>;
  return <Picture blob={drawing} mime="image/svg+xml" alt={alt} />;
}

function drawn(text: string): Blob | null {
  const drawing = clean(text);
  return drawing ? new Blob([drawing]) : null;
}

/** Empty for what is no drawing. */
export function clean(text: string): string {
  const root = sanitise(text, "svg").querySelector("svg");
  return root ? new XMLSerializer().serializeToString(root) : "";
}
