/** Every payload in every part that shows words of others. What a browser does with them is in tests/browser. */
import { render, type ComponentChild } from "preact";
import { act } from "preact/test-utils";
import { describe, expect, test } from "vitest";
import { place } from "../place";
import { CodeBlock } from "../../src/markdown/CodeBlock";
import { imageOf } from "../../src/markdown/mermaid";
import { Markdown } from "../../src/markdown/Markdown";
import { Formula } from "../../src/markdown/Formula";
import { highlight } from "../../src/markdown/languages";
import { sanitise, type Kind } from "../../src/markdown/sanitise";
import { cellOf } from "../../src/media/Media";
import { JsonTree } from "../../src/media/JsonTree";
import { clean } from "../../src/media/Picture";
import { HtmlTable, RowsTable } from "../../src/media/Table";
import corpus from "../../../tests/corpus/xss.json";

const TAGS = new Set(
  (
    "div span p a strong em s ul ol li blockquote h1 h2 h3 h4 h5 h6 hr br pre code table caption thead tbody tfoot tr " +
    "th td img button details summary figure svg path b i u sub sup kbd dl dt dd " +
    "math semantics mrow mi mn mo ms mtext mspace mfrac msqrt mroot mstyle mpadded mphantom menclose msub msup " +
    "msubsup munder mover munderover mtable mtr mtd mmultiscripts mprescripts none merror"
  ).split(" "),
);
const LINK = /^(?:https?:\/\/|mailto:)/i;
const PICTURE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$|\/files\/[^?#]+$/;
const ELSEWHERE = /url\(\s*(?!['"]?#)|@import|javascript:|evil\.example/i;

function wrong(root: ParentNode): string[] {
  return [...root.querySelectorAll("*")].flatMap((element) => {
    const tag = element.tagName.toLowerCase();
    const found = TAGS.has(tag) ? [] : [`<${tag}>`];
    for (const { name, value } of element.attributes) {
      if (/^on|^id$|^name$|^style$|^srcset$|^ping$|^background$|^formaction$/i.test(name)) found.push(`${tag} ${name}`);
      if (/href$/i.test(name) && !(tag === "a" && LINK.test(value))) found.push(`${tag} ${name}=${value}`);
      if (name === "src" && !(tag === "img" && PICTURE.test(value))) found.push(`${tag} src=${value}`);
      if (name === "class" && !value.split(" ").every(ours)) found.push(`${tag} class=${value}`);
    }
    if (tag === "a" && element.getAttribute("rel") !== "noopener noreferrer nofollow") found.push("a without rel");
    return found;
  });
}

const ours = (name: string): boolean => name === "" || /^(?:ak-[\w-]+|hljs-[a-z_-]+|[a-z]+__?)$/.test(name);

function shown(view: ComponentChild): HTMLElement {
  void act(() => render(view, place));
  return place;
}

describe("the eye of these tests", () => {
  test.each([
    "<script></script>",
    "<p onclick='1'>x</p>",
    "<a href='javascript:1' rel='noopener noreferrer nofollow'>x</a>",
    "<a href='https://a.b/'>x</a>",
    "<img src='https://evil.example/x.png'>",
    "<p style='color:red'>x</p>",
    "<p id=x>x</p>",
    "<p class=jp-Dialog>x</p>",
    "<iframe></iframe>",
  ])("sees %s", (html) => {
    place.innerHTML = html;
    expect(wrong(place)).not.toEqual([]);
  });
});

describe.each(corpus)("$class: $text", ({ text }) => {
  test("is harmless wherever it is shown", () => {
    expect(wrong(shown(<Markdown text={text} done={true} />))).toEqual([]);
    for (const share of [0.6, 1]) {
      render(null, place);
      const begun = text.slice(0, Math.ceil(text.length * share));
      expect(wrong(shown(<Markdown text={begun} done={false} />)), begun).toEqual([]);
    }
    expect(wrong(shown(<CodeBlock code={text} language={text} />))).toEqual([]);
    expect(place.querySelector("pre")?.textContent).toBe(text);
    expect(wrong(shown(<Formula tex={text} display={false} />))).toEqual([]);
    expect(wrong(shown(<JsonTree value={{ [text]: text }} name={text} />))).toEqual([]);
    expect(wrong(shown(<HtmlTable html={text} label={text} />))).toEqual([]);
    const column = { name: text, type: text };
    const rows = { columns: [column], index: [text], rows: [[text]], shape: [1, 1] };
    expect(wrong(shown(<RowsTable rows={rows} label={text} />))).toEqual([]);
    expect(place.querySelector("tbody td")?.textContent).toBe(text);
    // As it is, and escaped, in a table of pandas.
    for (const written of [text, text.replace(/&/g, "&amp;").replace(/</g, "&lt;")]) {
      const table = `<table><thead><tr><th></th><th>${written}</th></tr></thead><tbody><tr><th>${written}</th><td>${written}</td></tr></tbody></table>`;
      expect(wrong(shown(<HtmlTable html={table} label={text} />))).toEqual([]);
    }
    expect(place.querySelector("tbody td")?.textContent).toBe(text.replaceAll("\0", "").trim());
  });

  test("is a text and nothing else in colours and in a cell that we write", () => {
    for (const language of ["python", "xml", "markdown"]) {
      const coloured = highlight(text, language);
      expect(coloured.textContent).toBe(text);
      expect(wrong(coloured)).toEqual([]);
    }
    const cell = cellOf("application/vnd.vegalite.v5+json", JSON.stringify({ text }));
    const quoted = /json\.loads\((".*")\)\}, raw=True\)$/.exec(cell)?.[1] ?? "";
    expect(JSON.parse(JSON.parse(quoted) as string)).toEqual({ text });
  });

  test("loses what it would do when it is HTML", () => {
    for (const kind of ["formula", "code", "table"] satisfies Kind[])
      expect(wrong(sanitise(text, kind)), kind).toEqual([]);
    const drawn = clean(text.includes("<svg") ? text : `<svg xmlns="http://www.w3.org/2000/svg">${text}</svg>`);
    const parsed = new DOMParser().parseFromString(drawn || "<svg/>", "image/svg+xml");
    for (const element of parsed.querySelectorAll("*")) {
      for (const { name, value } of element.attributes) {
        expect(name).not.toMatch(/^on/i);
        if (!name.startsWith("xmlns")) expect(value, `${element.tagName} ${name}`).not.toMatch(ELSEWHERE);
      }
      expect(element.tagName).not.toMatch(/^(?:script|iframe|foreignObject|animate\w*|set|handler|a)$/i);
      if (element.tagName === "style") expect(element.textContent).not.toMatch(ELSEWHERE);
    }
    expect("pwned" in window).toBe(false);
    expect("pwned" in {}).toBe(false);
  });
});

test("every payload in a drawing is inside of an image, or there is none", () => {
  for (const { text } of corpus) {
    let address = "";
    try {
      address = imageOf(`<svg xmlns="http://www.w3.org/2000/svg">${text}</svg>`, "#fff");
    } catch {
      continue; // not well formed
    }
    expect(address).toMatch(/^data:image\/svg\+xml,[^"<>\s]+$/);
  }
  expect("pwned" in window).toBe(false);
});

test("the corpus is as large as it is said to be", () => {
  expect(corpus.length).toBeGreaterThanOrEqual(120);
});
