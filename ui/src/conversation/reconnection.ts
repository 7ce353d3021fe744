/** Reports that the connection to the server is back. */
import { effect, untracked, type ReadonlySignal } from "@preact/signals";
import type { Close, Connection } from "../transport/transport";

/** Call `back` each time that the connection is online again after a loss. A loss counts only if `needs()` was true at
 * some time during it. */
export function onReconnect(connection: ReadonlySignal<Connection>, needs: () => boolean, back: () => void): Close {
  let lost = false;
  return effect(() => {
    const online = connection.value === "online";
    if (online && lost) untracked(back);
    lost = !online && (lost || needs());
  });
}
