/** Syntax highlighting for the languages of notebooks. Other languages are shown without colours. */
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import cpp from "highlight.js/lib/languages/cpp";
import css from "highlight.js/lib/languages/css";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import julia from "highlight.js/lib/languages/julia";
import latex from "highlight.js/lib/languages/latex";
import markdown from "highlight.js/lib/languages/markdown";
import python from "highlight.js/lib/languages/python";
import pythonRepl from "highlight.js/lib/languages/python-repl";
import r from "highlight.js/lib/languages/r";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { sanitise } from "./sanitise";

const LANGUAGES = {
  bash,
  cpp,
  css,
  diff,
  go,
  ini,
  java,
  javascript,
  json,
  julia,
  latex,
  markdown,
  python,
  "python-repl": pythonRepl,
  r,
  rust,
  sql,
  typescript,
  xml,
  yaml,
};
for (const [name, grammar] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, grammar);
hljs.registerAliases(["ipython", "ipython3", "python3"], { languageName: "python" });
hljs.registerAliases(["shell", "console", "shell-session"], { languageName: "bash" });

/** Longer code is not highlighted, because that would block the page. */
const MAX_COLOURED = 40_000;

/** The code as nodes, highlighted if the language is known and the code is short enough. The text is always exactly
 * `code`. */
export function highlight(code: string, language: string): DocumentFragment {
  if (code.length <= MAX_COLOURED && hljs.getLanguage(language)) {
    const coloured = sanitise(hljs.highlight(code, { language, ignoreIllegals: true }).value, "code");
    if (coloured.textContent === code) return coloured;
  }
  const plain = document.createDocumentFragment();
  plain.append(code);
  return plain;
}

/** The language that the line after the backticks names: its first word, without common decorations as in `{python}`,
 * `.python` and `python:a.py`. */
export function languageOf(info: string): string {
  return (/^[\s{.]*([A-Za-z0-9+#-]{1,30})/.exec(info)?.[1] ?? "").toLowerCase();
}
