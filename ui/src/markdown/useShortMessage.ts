/** A short message that disappears after a while. */
import { useEffect, useState } from "preact/hooks";

const SHOWN_MS = 2_500;
/** A message is shown for this many milliseconds per character, and at least for SHOWN_MS. */
const MS_PER_CHARACTER = 90;

export function useShortMessage(): [string, (text: string) => void] {
  const [message, show] = useState("");
  useEffect(() => {
    if (!message) return;
    const timer = setTimeout(() => show(""), Math.max(SHOWN_MS, message.length * MS_PER_CHARACTER));
    return () => clearTimeout(timer);
  }, [message]);
  return [message, show];
}
