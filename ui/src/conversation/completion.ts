/** Completion of `/` commands and `@` mentions. The functions have no side effects. */
export interface Completion {
  kind: "command" | "mention";
  /** Offset of the `/` or `@` in the text, and offset after the last letter. */
  from: number;
  to: number;
  query: string;
}

const COMMAND = /^\/([a-z-]*)$/i;
const MENTION = /(?:^|[\s(,;:])@([\p{L}_][\p{L}\p{N}_.]*)?$/u;

/** Find the command or mention that the user is typing at the caret. A command is the first word of a message; a
 * mention is any word. */
export function findCompletion(text: string, caret: number): Completion | null {
  const before = text.slice(0, caret);
  const command = COMMAND.exec(before);
  if (command) return { kind: "command", from: 0, to: caret, query: command[1] ?? "" };
  const mention = MENTION.exec(before);
  if (!mention) return null;
  const query = mention[1] ?? "";
  return { kind: "mention", from: caret - query.length - 1, to: caret, query };
}

/** At most `most` options: those whose name starts with the query, then those that contain it; each in the given order. */
export function rank<Option extends { name: string }>(
  options: readonly Option[],
  query: string,
  most: number,
): Option[] {
  const wanted = query.toLowerCase();
  const place = (option: Option) => option.name.toLowerCase().indexOf(wanted);
  const first = options.filter((option) => place(option) === 0);
  return [...first, ...options.filter((option) => place(option) > 0)].slice(0, most);
}

/** Parse a message that is a command into its name and the rest. Null for any other text, such as a path. */
export function parseCommand(text: string): { name: string; rest: string } | null {
  const found = /^\/([a-z][a-z-]*)(?:\s+([\s\S]*))?$/i.exec(text.trim());
  return found ? { name: (found[1] ?? "").toLowerCase(), rest: found[2] ?? "" } : null;
}
