/** The bytes of a medium while a component shows it, fetched when it comes near the visible area. */
import { useContext, useEffect, useState } from "preact/hooks";
import { PanelContext } from "../conversation/panelContext";
import type { Medium } from "../wire/events";
import { acquireMedium } from "./bytes";
import { errorMessage } from "../transport/transport";

export type Loaded = { state: "waiting" } | { state: "there"; blob: Blob } | { state: "failed"; reason: string };

const WAITING: Loaded = { state: "waiting" };

export function useBytes(medium: Medium, session: string, near: boolean): Loaded {
  const transport = useContext(PanelContext)?.host.transport;
  const [loaded, setLoaded] = useState(WAITING);
  useEffect(() => {
    if (!near || !transport) return;
    const used = acquireMedium(transport, session, medium);
    let current = true;
    used.blob.then(
      (blob) => current && setLoaded({ state: "there", blob }),
      (error: unknown) =>
        current &&
        setLoaded({
          state: "failed",
          reason: errorMessage(error),
        }),
    );
    return () => {
      current = false;
      used.end();
      setLoaded(WAITING);
    };
  }, [transport, session, medium.hash ?? medium.data, near]);
  return loaded;
}

/** An object URL for the bytes, empty until it is made. The URL is revoked when the component is removed. */
export function useAddress(blob: Blob | null): string {
  const [address, setAddress] = useState("");
  useEffect(() => {
    if (!blob) return;
    const made = URL.createObjectURL(blob);
    setAddress(made);
    return () => {
      URL.revokeObjectURL(made);
      setAddress("");
    };
  }, [blob]);
  return address;
}
