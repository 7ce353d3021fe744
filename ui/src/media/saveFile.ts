/** A file of the page's, put where the browser puts files. */

/** Until the browser has surely begun to write. */
const KEPT_MS = 10_000;

/** `download` takes a name and no path: a browser drops what is before the last slash. */
export function saveFile(content: Blob, name: string): void {
  const address = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), KEPT_MS);
}
