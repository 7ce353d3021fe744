/** Bytes of a medium for as long as something shows them, from the moment it comes near to where a person looks. */
import { useContext, useEffect, useState } from "preact/hooks";
import type { RefObject } from "preact";
import { PanelContext } from "../conversation/panelContext";
import type { Medium } from "../wire/events";
import { acquireMedium } from "./bytes";

const NEAR = "400px";

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
        current && setLoaded({ state: "failed", reason: error instanceof Error ? error.message : "It is not there." }),
    );
    return () => {
      current = false;
      used.end();
      setLoaded(WAITING);
    };
  }, [transport, session, medium.hash ?? medium.data, near]);
  return loaded;
}

/** An address for the bytes; it ends with what shows it. */
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

/** Whether it is, and whether it was ever, near to what a person sees. */
export function useNear(place: RefObject<Element | null>): { now: boolean; ever: boolean } {
  const [near, setNear] = useState({ now: false, ever: false });
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    if (typeof IntersectionObserver === "undefined") {
      setNear({ now: true, ever: true });
      return;
    }
    const observer = new IntersectionObserver(
      (entries) => {
        const now = entries.at(-1)?.isIntersecting ?? false;
        setNear((before) => ({ now, ever: before.ever || now }));
      },
      { rootMargin: NEAR },
    );
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return near;
}
