/** Code as it is, except that invisible characters and those that reorder text are replaced by their code points. */
import type { ComponentChild } from "preact";
import { Code } from "../markdown/Code";
import { codePoint, hasInvisible, INVISIBLE } from "../turn/invisibleCharacters";

export function Source({ code, language, label }: { code: string; language: string; label: string }) {
  return (
    <pre class="ak-source" role="group" tabIndex={0} aria-label={label}>
      {hasInvisible(code) ? <code>{markInvisible(code)}</code> : <Code code={code} language={language} />}
    </pre>
  );
}

export function markInvisible(code: string): ComponentChild[] {
  const parts: ComponentChild[] = [];
  let from = 0;
  for (const found of code.matchAll(INVISIBLE)) {
    parts.push(code.slice(from, found.index), <mark class="ak-invisible">U+{codePoint(found[0])}</mark>);
    from = found.index + found[0].length;
  }
  return [...parts, code.slice(from)];
}
