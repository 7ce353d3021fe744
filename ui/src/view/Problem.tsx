/** A message about a problem, in one line. */
interface Message {
  /** Nothing is shown for an empty text. */
  text: string;
  /** Screen readers read an alert at once, a status when they are idle. */
  role?: "alert" | "status";
  name?: "ak-problem" | "ak-hint";
  /** Whether the message is part of a paragraph or of another line. */
  inline?: boolean;
}

export function Problem({ text, role = "alert", name = "ak-problem", inline = false }: Message) {
  if (!text) return null;
  const Tag = inline ? "span" : "p";
  return (
    <Tag class={name} role={role}>
      {text}
    </Tag>
  );
}
