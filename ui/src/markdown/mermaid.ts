/** Decides which Mermaid diagrams in an answer are drawn, and turns a drawing into an image. Mermaid draws in the page
 * itself. If a label or a style contains an address, Mermaid loads the address there, even in its strict mode, so a
 * source with an address is not drawn. */
import { trans } from "../translation/translation";
import { errorMessage } from "../transport/transport";
import type { RefObject } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import { PanelContext } from "../conversation/panelContext";
import { useNear } from "./useNear";

/** Limits for the source of a diagram: drawing a larger one would keep the page busy for seconds. MAX_JOINED limits the
 * number of `&`, because each `&` multiplies the edges: `a & b --> c & d` makes four. */
const MAX_CHARACTERS = 5_000;
const MAX_LINES = 250;
const MAX_JOINED = 40;
const MAX_REASON = 160;
/** A source that matches one of these patterns could make the page load something, and is not drawn. */
const LOADS = [
  /\/\//,
  // An HTML tag with an attribute, also as `< img`, because JupyterLab removes the space after `<`.
  /<\s*[a-z/!?][^>]*=/i,
  // The character `<`, written as an entity of HTML or Mermaid.
  /[#&]#?(?:lt|0*60|x0*3c)\b/i,
  /(?<![\w-])url\(|image-set|@import/i,
  // A node of the shape `img`, whose image Mermaid loads.
  /@\s*\{[^]*img/i,
  // A backslash, because an escape sequence of YAML, JSON or CSS can stand for any character of the patterns above.
  // `\n`, which labels need, and `\]`, which ends a node, are allowed.
  /\\(?![n\]])/,
];

/** The reason why a source must not be drawn, as a text for the user; empty if it may be drawn. */
export function reasonAgainst(source: string): string {
  const joined = source.split("&").length - 1;
  if (source.length > MAX_CHARACTERS || source.split("\n").length > MAX_LINES || joined > MAX_JOINED)
    return trans.__("The diagram is not drawn: it is too large.");
  if (LOADS.some((pattern) => pattern.test(source)))
    return trans.__("The diagram is not drawn: it contains an address, HTML or an escape sequence.");
  return "";
}

/** The reason why Mermaid could not draw, in one line. Mermaid's own message quotes the source over several lines. */
export function reasonOf(error: unknown): string {
  const [line = ""] = errorMessage(error).split("\n");
  return trans.__("The diagram cannot be drawn: %1", line.replace(/:\s*$/, "").slice(0, MAX_REASON));
}

/** The drawing as a data URL for an image; inside an image no script runs and nothing is loaded. The SVG gets the width
 * and height of the drawing, because without them it would become as wide as the panel. Throws if `svg` is no SVG. */
export function imageOf(svg: string, background: string): string {
  const root = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  if (root.localName !== "svg") throw new Error(trans.__("The result is not an SVG."));
  const [, , width = 0, height = 0] = (root.getAttribute("viewBox") ?? "").split(/[\s,]+/).map(Number);
  if (width > 0 && height > 0) {
    root.setAttribute("width", String(Math.ceil(width)));
    root.setAttribute("height", String(Math.ceil(height)));
  }
  root.setAttribute("style", `background: ${background}`);
  // It is not a blob URL, because an SVG at a blob URL that is opened in a tab of its own has the origin of this page.
  return `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(root))}`;
}

/** `address` is the data URL of the drawing, empty while there is none; `problem` says why there will be none. */
interface Drawn {
  address: string;
  title: string;
  problem: string;
}

const NOTHING: Drawn = { address: "", title: "", problem: "" };

/** Draws a diagram with the host's library when the element `place` comes near the visible area. `source` is null for
 * text that is no diagram or is not complete yet. Without a source or a library, nothing is drawn. */
export function useDiagram(source: string | null, place: RefObject<Element | null>): Drawn {
  const diagrams = useContext(PanelContext)?.host.diagrams;
  const theme = diagrams?.theme.value;
  const { ever } = useNear(place);
  const [drawn, setDrawn] = useState(NOTHING);
  useEffect(() => {
    setDrawn(NOTHING);
    if (source === null || !diagrams || !ever) return;
    const problem = reasonAgainst(source);
    if (problem) {
      setDrawn({ ...NOTHING, problem });
      return;
    }
    let current = true;
    const draw = async () => {
      try {
        const { svg, title, background } = await diagrams.draw(source);
        if (current) setDrawn({ address: imageOf(svg, background), title, problem: "" });
      } catch (error) {
        if (current) setDrawn({ ...NOTHING, problem: reasonOf(error) });
      }
    };
    void draw();
    return () => {
      current = false;
    };
  }, [source, diagrams, theme, ever]);
  return drawn;
}
