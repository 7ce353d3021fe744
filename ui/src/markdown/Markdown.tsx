/** Text of a model or a person, as Markdown. */
export function Markdown({ text }: { text: string; done: boolean }) {
  return <div class="ak-markdown">{text}</div>;
}
