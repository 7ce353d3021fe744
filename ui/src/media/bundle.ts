/** A medium that contains a MIME bundle: the output of a cell in each of its types. The panel renders one of them. */
import { sanitise } from "../markdown/sanitise";
import { lookOf } from "./mediaTypes";

export const BUNDLE = "application/vnd.agent-kernel.bundle+json";

/** The types that can be rendered, the preferred one first. */
const ORDER = [
  /^application\/vnd\.(?:plotly\.v1|vega(?:lite)?\.v\d+)\+json$/,
  /^text\/html$/,
  /^text\/markdown$/,
  /^image\/svg\+xml$/,
  /^text\/latex$/,
  /^application\/(?:geo\+)?json$/,
  /^text\/plain$/,
];

/** The part of a bundle that the panel renders, with its type: the first type in ORDER that it can render, otherwise
 * plain text. */
export async function drawable(bundle: Blob): Promise<Blob> {
  const parts = parseBundle(await bundle.text());
  const types = Object.keys(parts).filter((mime) => lookOf(mime) !== "unknown" && isShown(mime, textOf(parts[mime])));
  const mime = ORDER.map((wanted) => types.find((type) => wanted.test(type))).find((found) => found) ?? "text/plain";
  return new Blob([textOf(parts[mime])], { type: mime });
}

/** Whether a part shows anything: HTML that is empty without its scripts does not. */
const isShown = (mime: string, text: string): boolean =>
  mime !== "text/html" || sanitise(text, "table").textContent.trim() !== "";

function parseBundle(text: string): Record<string, unknown> {
  try {
    const value = JSON.parse(text) as unknown;
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : {};
  } catch {
    return {};
  }
}

function textOf(value: unknown): string {
  if (typeof value === "string") return value;
  if (Array.isArray(value) && value.every((line) => typeof line === "string")) return value.join("");
  return value === undefined ? "" : JSON.stringify(value);
}
