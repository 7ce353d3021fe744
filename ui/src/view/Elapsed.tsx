/** Elapsed and remaining time, updated every second in components of their own, so that nothing else is rendered for
 * it. */
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

/** The time since `since`, which is in seconds since the epoch, by the server's clock. It is hidden from screen
 * readers, which would read it again every second. */
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
