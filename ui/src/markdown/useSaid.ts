/** A short message that disappears after a while. */
import { useEffect, useState } from "preact/hooks";

const SAID_MS = 2_500;
/** Longer messages stay longer. */
const MS_PER_CHARACTER = 90;

export function useSaid(): [string, (text: string) => void] {
  const [said, say] = useState("");
  useEffect(() => {
    if (!said) return;
    const timer = setTimeout(() => say(""), Math.max(SAID_MS, said.length * MS_PER_CHARACTER));
    return () => clearTimeout(timer);
  }, [said]);
  return [said, say];
}
