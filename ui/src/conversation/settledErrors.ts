/** Which error of a cell the user has sent with a message, or removed from one, in each conversation of a notebook. The
 * browser keeps it for all pages, as checksums: a page that is loaded again does not attach the error again. */
import { browserStorage } from "./browserStorage";

const STORED = "settled-errors"; // the key in `browserStorage`
const MAX_STORED = 50;

/** Return the checksum of the error that is settled at `place`; empty if none is. */
export function readSettledError(place: string): string {
  const begin = `${checksum(place)}:`;
  return (
    stored()
      .find((entry) => entry.startsWith(begin))
      ?.slice(begin.length) ?? ""
  );
}

/** Store the checksum of the error that is settled at `place`; an empty one removes the entry. */
export function writeSettledError(place: string, error: string): void {
  const begin = `${checksum(place)}:`;
  const others = stored().filter((entry) => !entry.startsWith(begin));
  browserStorage.write(STORED, [...others, ...(error ? [begin + error] : [])].slice(-MAX_STORED).join(" "));
}

/** Return a checksum of 53 bits (cyrb53). It distinguishes texts and is no protection. */
export function checksum(text: string): string {
  let high = 0xdeadbeef;
  let low = 0x41c6ce57;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    high = Math.imul(high ^ code, 2654435761);
    low = Math.imul(low ^ code, 1597334677);
  }
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909);
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909);
  return (4294967296 * (2097151 & low) + (high >>> 0)).toString(36);
}

const stored = (): readonly string[] => browserStorage.read(STORED).split(" ").filter(Boolean);
