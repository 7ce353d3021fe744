/** A short message that disappears after a while. */
import { useEffect, useState } from "preact/hooks";

const SHOWN_MS = 2_500;
/** Longer messages stay longer. */
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
