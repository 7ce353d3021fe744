/** Whether a cell talks to the agent: a `%%agent` cell, or one with only `%agent` lines and comments. Its prompt and
 * its output are already in the conversation, or are help for the user. */
export function isAgentCell(source: string): boolean {
  const lines = source
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"));
  const [first = ""] = lines;
  return /^%%agent\b/.test(first) || (first !== "" && lines.every((line) => /^%agent\b/.test(line)));
}
