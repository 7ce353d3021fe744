/** A formula as MathML, which browsers draw without extra fonts. A formula that KaTeX cannot parse is shown as source.
 */
import katex from "katex";
import { useLayoutEffect, useRef } from "preact/hooks";
import { sanitise } from "./sanitise";

const MAX_SOURCE = 4_000;
const MAX_KEPT = 500;
const kept = new Map<string, DocumentFragment | null>();

export function Formula({ tex, display }: { tex: string; display: boolean }) {
  const place = useRef<HTMLSpanElement>(null);
  const drawn = formula(tex, display);
  useLayoutEffect(() => place.current?.replaceChildren(...(drawn ? [drawn.cloneNode(true)] : [])), [drawn]);
  if (!drawn) return <FormulaSource tex={tex} />;
  return <span key="drawn" class={display ? "ak-formula ak-display" : "ak-formula"} ref={place} />;
}

/** The source of a formula that is still being written, or that cannot be parsed. */
export function FormulaSource({ tex }: { tex: string }) {
  return (
    <code key="source" class="ak-formula-source">
      {tex}
    </code>
  );
}

/** The formula as MathML; null if it is too long or cannot be parsed. Results are cached. */
function formula(tex: string, display: boolean): DocumentFragment | null {
  const key = `${display ? "d" : "i"}${tex}`;
  const known = kept.get(key);
  if (known !== undefined) return known;
  const drawn = tex.length <= MAX_SOURCE ? draw(tex, display) : null;
  if (kept.size >= MAX_KEPT) kept.delete(kept.keys().next().value ?? "");
  kept.set(key, drawn);
  return drawn;
}

function draw(tex: string, displayMode: boolean): DocumentFragment | null {
  try {
    // `trust: false` forbids commands that make links, load images or set classes.
    const options = {
      displayMode,
      output: "mathml",
      trust: false,
      strict: "ignore",
      maxExpand: 200,
      maxSize: 20,
    } as const;
    return sanitise(katex.renderToString(tex, { ...options, throwOnError: true }), "formula");
  } catch {
    return null; // KaTeX throws ParseError, or RangeError for a formula that is nested too deeply
  }
}
