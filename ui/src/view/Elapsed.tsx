/** Time that passes, or is left, once per second, in its own component: nothing else is drawn again for it. */
import { useEffect, useState } from "preact/hooks";

const now = () => Date.now() / 1_000;

function useNow(): number {
  const [time, setTime] = useState(now);
  useEffect(() => {
    const timer = setInterval(() => setTime(now()), 1_000);
    return () => clearInterval(timer);
  }, []);
  return time;
}

const clock = (seconds: number): string =>
  seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;

/** `since` in seconds since the epoch, by the server's clock. Not read aloud: it would never end. */
export function Elapsed({ since }: { since: number }) {
  return (
    <span class="ak-time" aria-hidden="true">
      {clock(Math.max(0, Math.floor(useNow() - since)))}
    </span>
  );
}

export function Remaining({ until }: { until: number }) {
  return <span class="ak-time">{clock(Math.max(0, Math.ceil(until - useNow())))}</span>;
}
