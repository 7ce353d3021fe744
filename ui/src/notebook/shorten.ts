/** With its middle left out: of code the beginning says most, of an error its end. */
export function shorten(text: string, most: number): string {
  if (text.length <= most) return text;
  const half = most >> 1;
  return `${text.slice(0, half)}\n[... ${text.length - 2 * half} characters left out ...]\n${text.slice(-half)}`;
}
