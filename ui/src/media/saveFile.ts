/** Saves a file of the page in the browser's download folder. */

/** Milliseconds after which the browser has certainly started to write. */
const KEPT_MS = 10_000;

/** Save `content` as `name`. The attribute `download` takes a name, not a path: a browser removes everything before the
 * last slash. */
export function saveFile(content: Blob, name: string): void {
  const address = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), KEPT_MS);
}
