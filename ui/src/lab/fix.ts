/** Corrects a failed cell with the kernel's own command, `%agent fix`. The command tries corrected cells in a draft of
 * the kernel and returns the text to propose in a `set_next_input` payload. The panel proposes it as an edit of the
 * failed cell. */
import type { CodeCell } from "@jupyterlab/cells";
import type { NotebookPanel } from "@jupyterlab/notebook";
import type { Fix } from "../notebook/notebook";
import { randomId } from "../transport/randomId";
import { TURN_MIME } from "./missedOutputs";
import { trans } from "../translation/translation";

const none = () =>
  trans.__("No corrected cell ran without an error, so none is proposed. The turn shows what was tried.");

/** Run `%agent fix` for a failed cell; `words` is what the user adds to the request. Returns null if the kernel has no
 * such command, or no longer knows the failure. */
export async function fixInKernel(panel: NotebookPanel, cell: CodeCell, words: string): Promise<Fix | null> {
  const kernel = panel.sessionContext.session?.kernel;
  const count = cell.model.executionCount;
  if (!kernel || !count || panel.content.model?.defaultKernelLanguage !== "python") return null;
  const before = cell.model.sharedModel.getSource();
  const code = `%agent fix In[${count}] ${words.replace(/\s+/g, " ")}`.trim();
  const metadata = { cellId: `${cell.model.id}#${randomId()}` };
  const future = kernel.requestExecute({ code, store_history: false, allow_stdin: true }, true, metadata);
  let turn = "";
  future.onIOPub = ({ content }) => {
    const data = "data" in content ? (content.data as Record<string, unknown>) : {};
    const record = data[TURN_MIME] as { turn?: unknown } | undefined;
    if (typeof record?.turn === "string") turn = record.turn;
  };
  // The command may ask whether to run code in the kernel that a draft does not allow. The answer is no: a correction
  // must not change the kernel.
  future.onStdin = (question) => {
    future.sendInputReply({ status: "ok", value: "n" }, question.parent_header as never);
  };
  const { content } = await future.done;
  if (content.status !== "ok") {
    return turn ? { change: null, message: "evalue" in content ? content.evalue : none() } : null;
  }
  const after = proposedText((content as { payload?: unknown }).payload);
  if (after === null) return { change: null, message: none() };
  const index = panel.content.widgets.indexOf(cell);
  const place = { cell: cell.model.id, index, notebook: panel.context.localPath, below: "", from: "" };
  return {
    change: { call: "fix", turn, do: "edit", type: "code", before, after, kept: null, lost: "", ...place },
    message: "",
  };
}

function proposedText(payload: unknown): string | null {
  const parts = Array.isArray(payload) ? (payload as { source?: unknown; text?: unknown }[]) : [];
  const text = parts.find(({ source }) => source === "set_next_input")?.text;
  return typeof text === "string" ? text : null;
}
