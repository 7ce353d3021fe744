/** Which cells talk to the agent, and what the prompt of such a cell is. The server and the kernel apply the same rules
 * in `agent_kernel/core/wire/agent_cells.py`. */

/** The name of the kernelspec "Agent prompts (Python)", whose kernels run prompt cells as turns. */
export const AGENT_PYTHON = "agent-python";
/** The key of this package in the metadata of cells and outputs. */
export const METADATA_KEY = "agent_kernel";

// A line that begins with >>> is a pasted Python session.
const MARK = /^\s*>(?!>>)/;
const LINE_MARK = /^[ \t]*>(?!>>)[ \t]?/gm;

/** The prompt of a prompt cell, which begins with `>` or was switched to "Ask"; null for every other cell. `metadata`
 * are those of the cell. */
export function promptOf(source: string, metadata?: unknown): string | null {
  if (MARK.test(source)) return source.replace(LINE_MARK, "");
  return isSwitchedToAsk(metadata) && !isMagicCell(source) ? source : null;
}

/** Whether the cell is a `%%agent` cell. */
export function isMagicCell(source: string): boolean {
  return /^\s*%%agent\b/.test(source);
}

/** Whether a cell talks to the agent: a `%%agent` cell, a prompt cell, or a cell with only `%agent` lines and comments.
 * The prompt and the output of such a cell are already in the conversation, or are help for the user. */
export function isAgentCell(source: string, metadata?: unknown): boolean {
  const lines = source
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"));
  const [first = ""] = lines;
  if (isMagicCell(first) || promptOf(source, metadata) !== null) return true;
  return first !== "" && lines.every((line) => /^%agent\b/.test(line));
}

export function isSwitchedToAsk(metadata: unknown): boolean {
  return entry(metadata)["ask"] === true;
}

/** Whether an output offers to ask the agent. The kernel marks the error of a cell that is a sentence and no code with
 * this offer. */
export function offersToAsk(metadata: unknown): boolean {
  return entry(metadata)["offer"] === "ask";
}

function entry(metadata: unknown): Record<string, unknown> {
  const own = isRecord(metadata) ? metadata[METADATA_KEY] : null;
  return isRecord(own) ? own : {};
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}
