/** Which Mermaid diagrams of a model are drawn, and how a drawing becomes an image. The library draws in the page
 * itself. If a label or a style names an address, the library loads it there, even in its strict mode, so a source
 * with an address is not drawn. */
import { trans } from "../translation/translation";
import { errorMessage } from "../transport/transport";
import type { RefObject } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import { PanelContext } from "../conversation/panelContext";
import { useNear } from "./useNear";

/** Larger sources would keep the page busy for seconds. `&` joins each node before it with each node after it. */
const MAX_CHARACTERS = 5_000;
const MAX_LINES = 250;
const MAX_JOINED = 40;
const MAX_REASON = 160;
/** A source that matches one of these could make the page load something, and is not drawn. */
const LOADS = [
  /\/\//,
  // HTML with attributes, also as `< img`, from which Lab removes the space.
  /<\s*[a-z/!?][^>]*=/i,
  // The opening bracket as an entity of HTML or Mermaid.
  /[#&]#?(?:lt|0*60|x0*3c)\b/i,
  /(?<![\w-])url\(|image-set|@import/i,
  // A node of the shape `img` loads its image.
  /@\s*\{[^]*img/i,
  // An escape of YAML, JSON or CSS can spell all of the above. Mermaid needs `\n` in labels, and `\]` ends a node.
  /\\(?![n\]])/,
];

/** Why a source is not drawn; empty if it is. */
export function reasonAgainst(source: string): string {
  const joined = source.split("&").length - 1;
  if (source.length > MAX_CHARACTERS || source.split("\n").length > MAX_LINES || joined > MAX_JOINED)
    return trans.__("The diagram is not drawn: it is too large.");
  if (LOADS.some((pattern) => pattern.test(source)))
    return trans.__("The diagram is not drawn: it contains an address, HTML or an escape sequence.");
  return "";
}

/** One line with the reason of the library, which quotes the source over several lines. */
export function reasonOf(error: unknown): string {
  const [line = ""] = errorMessage(error).split("\n");
  return trans.__("The diagram cannot be drawn: %1", line.replace(/:\s*$/, "").slice(0, MAX_REASON));
}

/** The drawing as a data URL for an image, in which no script runs and nothing is loaded. The image gets the size of the
 * drawing; without it, it would be as wide as the panel. Throws if `svg` is no SVG. */
export function imageOf(svg: string, background: string): string {
  const root = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
  if (root.localName !== "svg") throw new Error(trans.__("The result is not an SVG."));
  const [, , width = 0, height = 0] = (root.getAttribute("viewBox") ?? "").split(/[\s,]+/).map(Number);
  if (width > 0 && height > 0) {
    root.setAttribute("width", String(Math.ceil(width)));
    root.setAttribute("height", String(Math.ceil(height)));
  }
  root.setAttribute("style", `background: ${background}`);
  // The address of a blob would have the origin of the page if it were opened in a tab of its own.
  return `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(root))}`;
}

/** `address` is empty while there is no drawing; `problem` says why there will be none. */
interface Drawn {
  address: string;
  title: string;
  problem: string;
}

const NOTHING: Drawn = { address: "", title: "", problem: "" };

/** The drawing of a diagram by the library of the host, made when it comes near the visible area. `source` is null for
 * what is no diagram, or not complete yet. Hosts without the library draw nothing. */
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
