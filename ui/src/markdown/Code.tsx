/** Code in the colours of the notebook's editor. Code that still grows is shown without colours; complete code is
 * coloured when the page is idle. */
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { highlight } from "./languages";

interface Shown {
  code: string;
  language: string;
  /** Whether the code still grows. */
  open?: boolean;
}

export function Code({ code, language, open = false }: Shown) {
  const place = useRef<HTMLElement>(null);
  useLayoutEffect(() => write(place.current, code), [code]);
  useEffect(() => {
    if (open || !language) return;
    return whenIdle(() => place.current?.replaceChildren(highlight(code, language)));
  }, [code, language, open]);
  return <code class="ak-code" ref={place} />;
}

/** Write code into `place`. Of growing code only the new end is appended, so that a selection in it stays. */
function write(place: HTMLElement | null, code: string): void {
  if (!place) return;
  const text = place.firstChild;
  if (text instanceof Text && !text.nextSibling && code.startsWith(text.data)) {
    text.appendData(code.slice(text.data.length));
  } else {
    place.replaceChildren(code);
  }
}

function whenIdle(work: () => void): () => void {
  if (typeof requestIdleCallback === "undefined") {
    const timer = setTimeout(work, 1);
    return () => clearTimeout(timer);
  }
  const idle = requestIdleCallback(work, { timeout: 500 });
  return () => cancelIdleCallback(idle);
}
