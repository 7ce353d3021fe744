/** Turns Markdown tokens into elements of an allow-list. No HTML text is written or parsed, so an element that is not
 * listed here cannot get into the page. */
import type { ComponentChild, ComponentChildren, VNode } from "preact";
import { h } from "preact";
import { isLink, isPicture } from "./urls";
import { CodeBlock } from "./CodeBlock";
import { Formula, FormulaSource } from "./Formula";
import { languageOf } from "./languages";
import type { Token } from "./parser";
import { trans } from "../translation/translation";

/** A function that renders running text in another way, such as with links from numbers to their source. */
export type Words = (text: string) => ComponentChildren;

const PLAIN = new Set(["p", "ul", "blockquote", "thead", "tbody", "tr", "strong", "em", "s"]);
const HEADING = /^h([1-6])$/;

interface Level {
  token: Token | null;
  children: ComponentChild[];
}

interface Setting {
  words: Words | null;
  open: boolean;
}

/** Make elements of the tokens. `words` renders running text; null renders it as it is. `open`: the last element still
 * grows. */
export function elements(tokens: readonly Token[], words: Words | null, open: boolean): ComponentChild[] {
  const levels: Level[] = [{ token: null, children: [] }];
  const last = tokens.findLastIndex((token) => token.nesting === 0);
  tokens.forEach((token, index) => {
    if (token.nesting === 1) {
      levels.push({ token, children: [] });
      return;
    }
    const closed = token.nesting === -1 ? levels.pop() : undefined;
    const growing = open && index === last;
    const made = closed ? branch(closed) : leaf(token, { words, open: growing });
    levels.at(-1)?.children.push(made);
  });
  return levels[0]?.children ?? [];
}

function branch({ token, children }: Level): ComponentChild {
  if (!token) return null;
  // markdown-it hides the paragraphs of a list without blank lines.
  if (token.hidden) return <>{children}</>;
  if (PLAIN.has(token.tag)) return h(token.tag, null, children);
  const heading = HEADING.exec(token.tag);
  if (heading) return <Heading level={Number(heading[1])}>{children}</Heading>;
  switch (token.tag) {
    case "li":
      return <li class={token.attrGet("class") === "ak-task" ? "ak-task" : undefined}>{children}</li>;
    case "a":
      return <Link address={attribute(token, "href")}>{children}</Link>;
    case "ol":
      return <ol start={Number(attribute(token, "start") || 1)}>{children}</ol>;
    case "table":
      return (
        <div class="ak-scroll" role="group" aria-label={trans.__("Table")} tabIndex={0}>
          <table>{children}</table>
        </div>
      );
    case "th":
    case "td":
      return h(token.tag, { class: alignmentOf(token) }, children);
    default:
      return <>{children}</>;
  }
}

function leaf(token: Token, setting: Setting): ComponentChild {
  switch (token.type) {
    case "inline":
      return <>{elements(token.children ?? [], setting.words, false)}</>;
    case "text":
    case "text_special":
      return setting.words ? setting.words(token.content) : token.content;
    case "task":
      return <TaskBox isDone={token.content !== ""} />;
    case "softbreak":
      return "\n";
    case "hardbreak":
      return <br />;
    case "hr":
      return <hr />;
    case "code_inline":
      return <code>{token.content}</code>;
    case "fence":
    case "code_block":
      return (
        <CodeBlock
          code={token.content.replace(/\n$/, "")}
          language={setting.open && !token.content ? "" : languageOf(token.info)}
          open={setting.open}
        />
      );
    case "image":
      return <Picture address={attribute(token, "src")} alt={token.content} />;
    case "formula":
      return <Formula tex={token.content} display={false} />;
    case "formula_display":
    case "formula_block":
      return <Formula tex={token.content} display={true} />;
    case "formula_open_ended":
    case "formula_open_ended_block":
      return <FormulaSource tex={token.content} />;
    default:
      return token.content;
  }
}

const attribute = (token: Token, name: string): string => String(token.attrGet(name) ?? "");

/** The mark that shows whether an item of a task list is done. It is not a check box that can be clicked, because
 * answers contain no controls. */
function TaskBox({ isDone }: { isDone: boolean }) {
  return (
    <span class="ak-task-box" role="img" aria-label={isDone ? trans.__("Done") : trans.__("Open")}>
      {isDone ? "\u2611\ufe0e" : "\u2610\ufe0e"}
    </span>
  );
}

/** Headings of an answer rank below the headings of the page. */
function Heading({ level, children }: { level: number; children: ComponentChildren }): VNode {
  return h(`h${Math.min(6, level + 2)}`, { class: `ak-h${level}` }, children);
}

function Link({ address, children }: { address: string; children: ComponentChildren }) {
  if (!isLink(address)) return <>{children}</>;
  return (
    <a href={address} title={address} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

function Picture({ address, alt }: { address: string; alt: string }) {
  if (isPicture(address)) return <img class="ak-picture" src={address} alt={alt} loading="lazy" />;
  return <>{`[${alt || trans.__("picture")}: ${address.slice(0, 200)}]`}</>;
}

function alignmentOf(token: Token): string | undefined {
  const side = /text-align:(left|center|right)/.exec(attribute(token, "style"))?.[1];
  return side && `ak-${side}`;
}
