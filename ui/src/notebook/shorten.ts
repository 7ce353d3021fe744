/** Shorten a text by leaving out its middle, so that `most` characters of it stay. The beginning of code and the end of
 * an error matter most. */
export function shorten(text: string, most: number): string {
  if (text.length <= most) return text;
  const half = most >> 1;
  return `${text.slice(0, half)}\n[... ${text.length - 2 * half} characters left out ...]\n${text.slice(-half)}`;
}
