/** The words of displayed tables. An answer whose rows have no other words only repeats the tables. */
import { useContext, useEffect, useState } from "preact/hooks";
import { PanelContext } from "../conversation/panelContext";
import { sanitise } from "../markdown/sanitise";
import type { Medium } from "../wire/events";
import { acquireMedium } from "./bytes";
import { lookOf } from "./mediaTypes";
import { gridOfRows, isRows } from "./rows";
import { MAX_HTML } from "./Table";

/** The words of all tables among the media; null until they are loaded. A medium that cannot be loaded has no words. */
export function useTableWords(media: readonly Medium[], session: string): ReadonlySet<string> | null {
  const transport = useContext(PanelContext)?.host.transport;
  const [words, setWords] = useState<ReadonlySet<string> | null>(null);
  const names = media.map((medium) => medium.hash ?? medium.data ?? "").join();
  useEffect(() => {
    if (!transport) return;
    const used = media.map((medium) => acquireMedium(transport, session, medium));
    let current = true;
    void Promise.allSettled(used.map(async (one, at) => await wordsOf(await one.blob, media[at]?.mime ?? ""))).then(
      (all) => current && setWords(new Set(all.flatMap((one) => (one.status === "fulfilled" ? one.value : [])))),
    );
    return () => {
      current = false;
      for (const one of used) one.end();
    };
  }, [transport, session, names]);
  return words;
}

/** `blob` has a type if it is a part of a bundle. */
async function wordsOf(blob: Blob, mime: string): Promise<string[]> {
  const look = lookOf(blob.type || mime);
  if (look === "html" && blob.size <= MAX_HTML) {
    const cells = sanitise(await blob.text(), "table").querySelectorAll("th, td");
    return [...cells].flatMap((cell) => splitWords(cell.textContent));
  }
  if (look !== "table") return [];
  const value = JSON.parse(await blob.text()) as unknown;
  if (!isRows(value)) return [];
  const { columns, rows } = gridOfRows(value);
  return [...columns.map(({ name }) => name), ...rows.flat().map(({ text }) => text)].flatMap(splitWords);
}

export const splitWords = (text: string): string[] => text.split(/\s+/).filter(Boolean);
