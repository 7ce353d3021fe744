/** The outputs of a cell as text, for the chips in the composer and for the model. Never HTML, and limited in
 * length. */
import type { Cell, CodeCell } from "@jupyterlab/cells";
import type { IOutput } from "@jupyterlab/nbformat";
import { isAgentCell } from "../notebook/agentCells";
import { shorten } from "../notebook/shorten";

export const MAX_WORDS = 8_000;

// Escape sequences for terminal colours, which tracebacks contain.
const COLOURS = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\))/g;

export function isCode(cell: Cell | null | undefined): cell is CodeCell {
  return cell?.model.type === "code";
}

export function outputsOf(cell: Cell): readonly IOutput[] {
  return isCode(cell) ? cell.model.outputs.toJSON() : [];
}

export function words(outputs: readonly IOutput[]): string {
  return shorten(outputs.map(outputText).filter(Boolean).join("\n"), MAX_WORDS);
}

/** Errors that are not failures of the cell's code: an interrupt by the user, and errors of the agent's own magics. The
 * kernel ignores the same ones (`agent_kernel/notebook/turn/execution_history.py`). */
const NO_FAILURES = new Set(["KeyboardInterrupt", "AgentInterrupted", "AgentError"]);

export function hasError(outputs: readonly IOutput[]): boolean {
  return outputs.some((output) => output.output_type === "error" && !NO_FAILURES.has(joinText(output["ename"])));
}

/** Index of the failed cell that ran last; -1 if none failed. */
export function lastFailed(cells: readonly Cell[]): number {
  let found = -1;
  let newest = -1;
  cells.forEach((cell, index) => {
    if (!isCode(cell)) return;
    const { outputs, executionCount, sharedModel, metadata } = cell.model;
    const errors = Array.from({ length: outputs.length }, (_, at) => outputs.get(at)).filter(
      ({ type }) => type === "error",
    );
    const failed = hasError(errors.map((error) => error.toJSON())) && !isAgentCell(sharedModel.getSource(), metadata);
    if (failed && (executionCount ?? 0) >= newest) {
      newest = executionCount ?? 0;
      found = index;
    }
  });
  return found;
}

function outputText(output: IOutput): string {
  if (output.output_type === "stream") return joinText(output["text"]);
  if (output.output_type === "error") {
    const traceback = joinText(output["traceback"], "\n");
    return (traceback || `${joinText(output["ename"])}: ${joinText(output["evalue"])}`).replace(COLOURS, "");
  }
  const data = (output["data"] ?? {}) as Record<string, unknown>;
  const said = joinText(data["text/plain"]) || joinText(data["text/markdown"]);
  const pictures = Object.keys(data).filter((mime) => mime.startsWith("image/"));
  return [said.replace(COLOURS, ""), ...pictures.map((mime) => `[${mime}]`)].filter(Boolean).join("\n");
}

/** The text of a value in the nbformat, which is one string or a list of lines. */
function joinText(value: unknown, between = ""): string {
  if (Array.isArray(value)) return value.map(String).join(between);
  return typeof value === "string" ? value : "";
}
