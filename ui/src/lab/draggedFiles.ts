/** Files that are dragged from JupyterLab's file browser to the panel: their paths go into the message, as if they were
 * typed. The files are on the server already, so nothing is attached. */

const CONTENTS = "application/x-jupyter-icontents";
/** Paths that the agent recognises in a message without quotes. */
const PLAIN = /^(?!\.\.)\w[\w./-]*\.[A-Za-z]\w{0,9}$/;

/** A drag within JupyterLab, as Lumino's events describe it. */
interface LabDrag extends Event {
  readonly proposedAction: string;
  dropAction: string;
  readonly mimeData: { hasData(mime: string): boolean; getData(mime: string): unknown };
}

/** Accept drags from the file browser at `node`. `folder` returns the folder of the current notebook, `localPath` a
 * path of the file browser without its drive. */
export function takeDraggedFiles(node: HTMLElement, folder: () => string, localPath: (path: string) => string): void {
  const on = (type: string, react: (event: LabDrag) => void) =>
    node.addEventListener(type, (event) => {
      const drag = event as LabDrag;
      if (!drag.mimeData.hasData(CONTENTS)) return;
      event.preventDefault();
      event.stopPropagation();
      react(drag);
    });
  on("lm-dragenter", () => undefined);
  on("lm-dragleave", () => undefined);
  on("lm-dragover", (drag) => (drag.dropAction = drag.proposedAction));
  on("lm-drop", (drag) => {
    drag.dropAction = drag.proposedAction;
    const paths = drag.mimeData.getData(CONTENTS);
    if (!Array.isArray(paths)) return;
    const names = paths
      .filter((path) => typeof path === "string")
      .map((path) => relativePath(localPath(path), folder()));
    insertText(node, names.map((name) => (PLAIN.test(name) ? name : `"${name}"`)).join(", "));
  });
}

/** Returns `path` relative to `folder`. Both are paths on the server. */
export function relativePath(path: string, folder: string): string {
  const to = path.split("/").filter(Boolean);
  const from = folder.split("/").filter(Boolean);
  let same = 0;
  while (same < from.length && same < to.length - 1 && from[same] === to[same]) same++;
  return [...from.slice(same).map(() => ".."), ...to.slice(same)].join("/");
}

/** Insert text at the cursor of the message field, set off by spaces, and focus the field. */
function insertText(node: HTMLElement, text: string): void {
  const field = node.querySelector<HTMLTextAreaElement>(".ak-composer textarea");
  if (!field || !text) return;
  const { value, selectionStart: start, selectionEnd: end } = field;
  const before = start > 0 && !/\s/.test(value.charAt(start - 1)) ? " " : "";
  const after = /^\s/.test(value.slice(end)) ? "" : " ";
  field.setRangeText(before + text + after, start, end, "end");
  field.dispatchEvent(new InputEvent("input", { bubbles: true }));
  field.focus();
}
