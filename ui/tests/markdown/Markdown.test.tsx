import { render } from "preact";
import { act } from "preact/test-utils";
import { describe, expect, test } from "vitest";
import { place } from "../place";
import { Markdown } from "../../src/markdown/Markdown";

function show(text: string, done = true): HTMLElement {
  void act(() => render(<Markdown text={text} done={done} />, place));
  return place;
}

/** As it looks when the text has grown to this length: a fresh page, since a growing one waits for its next frame. */
function grownTo(text: string): HTMLElement {
  render(null, place);
  return show(text, false);
}

const STORY = `# Rain in **May**

It rained *more* than in \`2023\`: see [the data](https://example.org/rain) and $x_1 + x_2$.

| month | mm |
|---|--:|
| May | 61 |

- one **bold** word
- two

\`\`\`python
df = load("rain.csv")  # *all* of it
\`\`\`

$$
\\frac{a}{b}
$$

The end, with ***both*** and ~~none~~.
`;

describe("Markdown", () => {
  test("shows which items of a task list are done", () => {
    const shown = show("- [ ] one *word*\n- [x] two\n- [X] three\n- four [x]\n- [y] five\n\n1. [x] first\n\n[ ] none");
    const boxes = [...shown.querySelectorAll("[role=img]")].map((box) => box.getAttribute("aria-label"));
    expect(boxes).toEqual(["Open", "Done", "Done", "Done"]);
    expect([...shown.querySelectorAll("li")].map((item) => item.textContent)).toEqual([
      "\u2610\ufe0eone word",
      "\u2611\ufe0etwo",
      "\u2611\ufe0ethree",
      "four [x]",
      "[y] five",
      "\u2611\ufe0efirst",
    ]);
    expect(shown.querySelectorAll("ul > li.ak-task")).toHaveLength(3);
    expect(shown.querySelector(":scope > .ak-markdown > p, p:last-child")?.textContent).toBe("[ ] none");
  });

  test("becomes elements", () => {
    const shown = show(STORY);
    expect(shown.querySelector("h3")?.textContent).toBe("Rain in May");
    expect(shown.querySelector("em")?.textContent).toBe("more");
    expect(shown.querySelector("td.ak-right")?.textContent).toBe("61");
    expect(shown.querySelectorAll("ul li")).toHaveLength(2);
    expect(shown.querySelector("pre code")?.textContent).toBe('df = load("rain.csv")  # *all* of it');
    expect(shown.querySelectorAll("math")).toHaveLength(2);
    expect(shown.querySelector(".ak-display mfrac")).not.toBeNull();
    const link = shown.querySelector("a");
    expect(link?.getAttribute("href")).toBe("https://example.org/rain");
    expect(link?.rel).toBe("noopener noreferrer nofollow");
    expect(link?.target).toBe("_blank");
  });

  test("shows no marks that are still open, at any length", () => {
    for (let length = 1; length <= STORY.length; length++) {
      const shown = grownTo(STORY.slice(0, length)).cloneNode(true) as HTMLElement;
      for (const code of shown.querySelectorAll("code, math, .ak-code-bar")) code.remove();
      expect(shown.textContent, STORY.slice(0, length)).not.toMatch(/[*`|~$]|\]\(|https|--|^#/);
    }
  });

  test("has the same elements when it grew letter by letter as when it came at once", async () => {
    const { Document } = await import("../../src/markdown/incrementalParser");
    const growing = new Document();
    for (let length = 1; length <= STORY.length; length++) growing.update(STORY.slice(0, length), false);
    const grown = growing.update(STORY, true);
    expect(grown).toEqual(new Document().update(STORY, true));
    expect(grown.map((piece) => piece.source).join("")).toBe(STORY);
  });

  test("keeps the nodes of blocks that something follows", () => {
    show("First *one*.\n\nSecond", false);
    const first = place.querySelector("p");
    const word = place.querySelector("em");
    show("First *one*.\n\nSecond and more.\n\nThird", true);
    expect(place.querySelector("p")).toBe(first);
    expect(place.querySelector("em")).toBe(word);
    expect(place.querySelectorAll("p")).toHaveLength(3);
  });

  test("shows an open fence as code at once, and adds to it without writing it again", () => {
    show("```python\nx = 1", false);
    const code = place.querySelector("pre code");
    const node = code?.firstChild;
    expect(code?.textContent).toBe("x = 1");
    show("```python\nx = 1\ny = 2\n```", true);
    expect(place.querySelector("pre code")?.textContent).toBe("x = 1\ny = 2");
    expect(place.querySelector("pre code")).toBe(code);
    expect(code?.firstChild).toBe(node);
  });

  test("finds links that are defined at the end", () => {
    expect(show("See [this][1].\n\n[1]: https://example.org/a").querySelector("a")?.textContent).toBe("this");
  });

  test.each(["costs $5 and $6", "between $ 5 and $ 6", "$HOME and $PATH", "a \\$x\\$ b"])(
    "leaves money alone: %s",
    (text) => {
      expect(show(text).querySelector("math")).toBeNull();
      expect(show(text).textContent).toBe(text.replaceAll("\\", ""));
    },
  );

  test.each(["$a^2$", "\\(a^2\\)", "$$a^2$$", "\\[a^2\\]", "so \\[a^2\\] is", "- $$\n  a^2\n  $$"])(
    "draws %s",
    (text) => {
      expect(show(text).querySelector("math msup")).not.toBeNull();
      expect(show(text).textContent).not.toContain("$");
    },
  );

  test("shows a formula that can not be read as it was written", () => {
    expect(show("It is $\\frac{a$ here").querySelector("code.ak-formula-source")?.textContent).toBe("\\frac{a");
  });

  test("cuts a huge answer and shows more of it when asked", () => {
    const paragraph = `${"word ".repeat(200)}\n\n`;
    const shown = show(paragraph.repeat(5_000));
    expect(shown.textContent.length).toBeLessThan(210_000);
    void act(() => shown.querySelector<HTMLButtonElement>(".ak-more")?.click());
    expect(shown.textContent.length).toBeGreaterThan(390_000);
  });

  test("goes on with code that was cut where the rest of it is shown", () => {
    const code = Array.from({ length: 30_000 }, (_, line) => `x = ${line}`).join("\n");
    const shown = show(`Look:\n\n\`\`\`python\n${code}\n\`\`\`\n\nThe *end*.`);
    expect(shown.querySelectorAll("pre")).toHaveLength(1);
    void act(() => shown.querySelector<HTMLButtonElement>(".ak-more")?.click());
    expect(shown.querySelectorAll("pre")).toHaveLength(1);
    expect(shown.querySelector("pre")?.textContent).toBe(code);
    expect(shown.querySelector("em")?.textContent).toBe("end");
  });

  test.each([
    ["[".repeat(40_000), "brackets"],
    ["![[]()".repeat(8_000), "pictures"],
    ["$a ".repeat(16_000), "dollars"],
    ["*a _b ".repeat(8_000), "emphasis"],
    ["> ".repeat(20_000), "quotes"],
    ["- ".repeat(20_000), "lists"],
    ["`".repeat(3) + "x".repeat(150_000), "a line of code"],
    ["|".repeat(20_000) + "\n" + "|-".repeat(10_000), "columns"],
    ["https://a.b/".repeat(4_000), "links"],
  ])("is not stopped by %#", (text) => {
    grownTo(text);
    expect(show(`${text}\n\n~~~\n~~~\n\nThe end`).textContent).toContain("The end");
  });
});
