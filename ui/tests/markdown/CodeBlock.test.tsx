import { signal } from "@preact/signals";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { Drawing } from "../../src/conversation/panelContext";
import { CodeBlock } from "../../src/markdown/CodeBlock";
import { Desked } from "../view/desked";

const RUN = "Ask the agent to run this in the sandbox";

let shell: Desked;
beforeEach(() => {
  shell = new Desked();
});
afterEach(() => shell.close());

test("a piece of code that the server does not take was not sent, and says so", async () => {
  await shell.show(<CodeBlock code="x = 1" language="python" />);
  shell.server.refuses = true;
  await shell.press(RUN);
  expect(shell.find("[role=status]").textContent).toBe("The message was not sent.");
  shell.server.refuses = false;
  await shell.press(RUN);
  expect(shell.find("[role=status]").textContent).toBe("Sent");
});

test("two clicks send it once", async () => {
  let answer: (taken: boolean) => void = () => undefined;
  const send = vi.spyOn(shell.conversation, "send").mockImplementation(() => new Promise((done) => (answer = done)));
  await shell.show(<CodeBlock code="x = 1" language="python" />);
  await shell.press(RUN);
  await shell.press(RUN);
  expect(send).toHaveBeenCalledOnce();
  await act(() => answer(true));
  await shell.press(RUN);
  expect(send).toHaveBeenCalledTimes(2);
});

describe("a Mermaid diagram", () => {
  const SOURCE = "flowchart LR\n  A[Read] --> B[Clean]";
  const SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="100%" viewBox="0 0 120.4 40"><title>x</title></svg>';
  const theme = signal("light");
  const draw = vi.fn<(source: string) => Promise<Drawing>>();
  const diagrams = { theme, draw };
  const problem = () => shell.find(".ak-code-note").textContent;
  const settle = () => act(() => new Promise<void>((done) => setTimeout(done)));

  beforeEach(() => draw.mockReset().mockResolvedValue({ svg: SVG, title: "", background: "#111" }));

  test("is an image in its own size as soon as it is complete, and its code is one click away", async () => {
    await shell.show(<CodeBlock code={SOURCE} language="mermaid" open={true} />, { diagrams });
    await settle();
    expect(draw).not.toHaveBeenCalled();
    await shell.show(<CodeBlock code={SOURCE} language="mermaid" />, { diagrams });
    await settle();
    expect(draw).toHaveBeenCalledExactlyOnceWith(SOURCE);
    const svg = decodeURIComponent(shell.find("img").getAttribute("src") ?? "");
    expect(svg).toMatch(/^data:image\/svg\+xml,<svg [^]*width="121" [^]*height="40" style="background: #111"/);
    expect(shell.page.querySelector("pre")).toBeNull();
    await shell.press("Show the code");
    expect(shell.find("pre").textContent).toBe(SOURCE);
    await shell.press("Show the diagram");
    expect(shell.find("img").getAttribute("alt")).toBe("Diagram");
  });

  test("is code where the host has no library, and in another language", async () => {
    await shell.show(<CodeBlock code={SOURCE} language="mermaid" />);
    await settle();
    expect(shell.find("pre").textContent).toBe(SOURCE);
    await shell.show(<CodeBlock code={SOURCE} language="text" />, { diagrams });
    await settle();
    expect(draw).not.toHaveBeenCalled();
  });

  test("is drawn again in the colours of another theme", async () => {
    await shell.show(<CodeBlock code={SOURCE} language="mermaid" />, { diagrams });
    await settle();
    await act(() => {
      theme.value = "dark";
    });
    await settle();
    expect(draw).toHaveBeenCalledTimes(2);
  });

  test("that cannot be drawn is code, with one line of why", async () => {
    draw.mockRejectedValueOnce(new Error("Parse error on line 2:\n...A --->\n-----^"));
    await shell.show(<CodeBlock code={SOURCE} language="mermaid" />, { diagrams });
    await settle();
    expect(problem()).toBe("The diagram cannot be drawn: Parse error on line 2");
    expect(shell.find("pre").textContent).toBe(SOURCE);
    draw.mockResolvedValueOnce({ svg: "<svg", title: "", background: "" });
    await shell.show(<CodeBlock code="pie" language="mermaid" />, { diagrams });
    await settle();
    expect(problem()).toBe("The diagram cannot be drawn: The result is not an SVG.");
  });

  test.each([
    'flowchart LR\n  A["<img src=x>"]',
    'flowchart LR\n  A["< img\nsrc=x>"]',
    'flowchart LR\n  A["#lt;img src#equals;x#gt;"] --> B["&#x3c;"]',
    "flowchart LR\n  A@{ label: x, img: pixel.png }",
    'flowchart LR\n  A@{ "\\u0069mg": "pixel.png" }',
    "flowchart LR\n  A\n  style A fill:url(x)",
    '%%{init: {"themeCSS": "@import \'x\'"}}%%\npie',
    '%%{init: {"themeCSS": "* {background: u\\72l(x)}"}}%%\npie',
    'flowchart LR\n  click A "https://evil.example/"',
  ])("that could load an address is not drawn: %s", async (source) => {
    await shell.show(<CodeBlock code={source} language="mermaid" />, { diagrams });
    await settle();
    expect(problem()).toContain("it contains an address, HTML or an escape sequence");
    expect(draw).not.toHaveBeenCalled();
  });

  test.each(["A\n".repeat(251), "A".repeat(5_001), "A & ".repeat(41)])(
    "that is too large is not drawn",
    async (source) => {
      await shell.show(<CodeBlock code={source} language="mermaid" />, { diagrams });
      await settle();
      expect(problem()).toContain("too large");
      expect(draw).not.toHaveBeenCalled();
    },
  );

  test.each([
    "classDiagram\n  class Shape {\n    <<interface>>\n    +getUrl(x) string\n    +data: List~int~\n  }\n  Shape <|-- Box",
    'flowchart TD\n  A["First\\nsecond"] --> B[/Input\\]\n  B <--> C["a<br/>b &amp; c"]\n  style A fill:#600,stroke:#333',
    "sequenceDiagram\n  Client->>Server: HTTP: GET src\n  Server-->>Client: data: 5 < 6",
    "erDiagram\n  A ||--o{ B : has",
  ])("in the words of Mermaid is drawn: %s", async (source) => {
    await shell.show(<CodeBlock code={source} language="mermaid" />, { diagrams });
    await settle();
    expect(draw).toHaveBeenCalledOnce();
  });
});
