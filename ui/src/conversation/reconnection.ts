/** Reports that the connection to the server is back. */
import { effect, untracked, type ReadonlySignal } from "@preact/signals";
import type { Close, Connection } from "../transport/transport";

/** Call `back` each time that the connection is online again after it was lost. It counts as lost only while there is
 * something that `needs` it. */
export function onReconnect(connection: ReadonlySignal<Connection>, needs: () => boolean, back: () => void): Close {
  let lost = false;
  return effect(() => {
    const online = connection.value === "online";
    if (online && lost) untracked(back);
    lost = !online && (lost || needs());
  });
}
