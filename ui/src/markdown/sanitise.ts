/** Reduces foreign HTML (formulas, highlighted code, tables, images) to an allow-list for each kind. It returns nodes
 * and no HTML text, because a second parser could read the text in another way than the one that checked it. */
import createDOMPurify, { type Config, type DOMPurify } from "dompurify";

export type Kind = "formula" | "code" | "table" | "svg";

const FORMULA_TAGS =
  "math semantics mrow mi mn mo ms mtext mspace mfrac msqrt mroot mstyle merror mpadded mphantom menclose msub msup " +
  "msubsup munder mover munderover mmultiscripts mprescripts none mtable mtr mtd";
const FORMULA_ATTRIBUTES =
  "xmlns display mathvariant mathcolor mathbackground stretchy fence separator lspace rspace minsize maxsize " +
  "columnalign rowspacing columnspacing columnlines rowlines scriptlevel displaystyle width height depth voffset " +
  "accent accentunder linethickness movablelimits largeop symmetric notation form";
const TABLE_TAGS =
  "table caption thead tbody tfoot tr th td b i em strong u s sub sup code pre kbd br hr p div span ul ol li dl dt dd " +
  "h1 h2 h3 h4 h5 h6";
const CODE_CLASS = /^(?:hljs-[a-z_-]+|[a-z]+__?)$/;
const LEADS_ELSEWHERE = /url\s*\(\s*(?!['"]?#)|@import|image-set|\\/i;

const words = (text: string): string[] => text.split(" ");
const COMMON: Config = {
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOW_UNKNOWN_PROTOCOLS: false,
  SANITIZE_DOM: true,
  RETURN_DOM_FRAGMENT: true,
};
const CONFIGS: Record<Kind, Config> = {
  formula: { ...COMMON, ALLOWED_TAGS: words(FORMULA_TAGS), ALLOWED_ATTR: words(FORMULA_ATTRIBUTES) },
  code: { ...COMMON, ALLOWED_TAGS: ["span", "#text"], ALLOWED_ATTR: ["class"] },
  table: { ...COMMON, ALLOWED_TAGS: [...words(TABLE_TAGS), "#text"], ALLOWED_ATTR: ["colspan", "rowspan", "scope"] },
  svg: {
    ...COMMON,
    USE_PROFILES: { svg: true, svgFilters: true },
    FORBID_TAGS: ["a", "animate", "animateTransform", "animateMotion", "set", "foreignObject", "script"],
    ADD_TAGS: ["use"],
    ADD_ATTR: ["xlink:href", "href"],
  },
};
CONFIGS.formula.ALLOWED_TAGS?.push("#text");

const purifiers = new Map<Kind, DOMPurify>();

/** Keep the allowed elements and attributes. Of any other element only its text stays. It never throws. */
export function sanitise(html: string, kind: Kind): DocumentFragment {
  const clean = purifier(kind).sanitize(html, CONFIGS[kind]) as unknown as DocumentFragment;
  // Adopt the nodes; otherwise each one would keep the document in memory that it was parsed in.
  return document.adoptNode(clean);
}

function purifier(kind: Kind): DOMPurify {
  const known = purifiers.get(kind);
  if (known) return known;
  const made = createDOMPurify(window);
  if (kind === "formula") {
    made.addHook("uponSanitizeElement", (node, { tagName }) => {
      if (tagName === "annotation") node.parentNode?.removeChild(node);
    });
  }
  if (kind === "code") {
    made.addHook("uponSanitizeAttribute", (_node, data) => {
      data.keepAttr = data.attrValue.split(" ").every((name) => CODE_CLASS.test(name));
    });
  }
  if (kind === "svg") {
    made.addHook("uponSanitizeElement", (node, { tagName }) => {
      if (tagName === "style" && LEADS_ELSEWHERE.test(node.textContent ?? "")) node.textContent = "";
    });
    made.addHook("uponSanitizeAttribute", (_node, data) => {
      const value = data.attrValue;
      if (/href$/i.test(data.attrName)) data.keepAttr = /^(?:#|data:image\/(?:png|jpeg|gif|webp);base64,)/i.test(value);
      else if (LEADS_ELSEWHERE.test(value)) data.keepAttr = false;
    });
  }
  purifiers.set(kind, made);
  return made;
}
