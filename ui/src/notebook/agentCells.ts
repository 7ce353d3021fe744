/** Whether a cell talks to the agent: a `%%agent` cell, or one with nothing but `%agent` lines and comments. What it asks
 * and shows is in the conversation already, or is help for a person. */
export function isAgentCell(source: string): boolean {
  const lines = source
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"));
  const [first = ""] = lines;
  return /^%%agent\b/.test(first) || (first !== "" && lines.every((line) => /^%agent\b/.test(line)));
}
