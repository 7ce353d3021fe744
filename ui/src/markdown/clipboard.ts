/** Copy text to the clipboard, also in pages without TLS, where the clipboard API is missing. */
import { trans } from "../translation/translation";
export async function copy(text: string): Promise<void> {
  // The type says that it is always there, but a page without TLS has no clipboard API.
  const clipboard = navigator.clipboard as Clipboard | undefined;
  if (clipboard) {
    await clipboard.writeText(text);
    return;
  }
  const focused = document.activeElement;
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "ak-unseen";
  document.body.append(area);
  area.select();
  // `execCommand` is deprecated, but nothing else works in a page without TLS.
  const done = (document as { execCommand?: (command: string) => boolean }).execCommand?.("copy") ?? false;
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  if (!done) throw new Error(trans.__("This browser does not allow the page to copy."));
}
