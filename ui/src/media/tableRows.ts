/** The rows of displayed tables as text. An answer that consists of such rows only repeats the tables. */
import { useContext, useEffect, useState } from "preact/hooks";
import { PanelContext } from "../conversation/panelContext";
import { sanitise } from "../markdown/sanitise";
import type { Medium } from "../wire/events";
import { acquireMedium } from "./bytes";
import { lookOf } from "./mediaTypes";
import { gridOfRows, isRows } from "./rows";
import { MAX_HTML } from "./Table";

/** The rows, in the form of `normalizeRow`, of all tables among the media; null until they are loaded. A medium that
 * cannot be loaded has no rows. */
export function useTableRows(media: readonly Medium[], session: string): ReadonlySet<string> | null {
  const transport = useContext(PanelContext)?.host.transport;
  const [rows, setRows] = useState<ReadonlySet<string> | null>(null);
  const names = media.map((medium) => medium.hash ?? medium.data ?? "").join();
  useEffect(() => {
    if (!transport) return;
    const used = media.map((medium) => acquireMedium(transport, session, medium));
    let current = true;
    void Promise.allSettled(used.map(async (one, at) => await rowsOf(await one.blob, media[at]?.mime ?? ""))).then(
      (all) => current && setRows(new Set(all.flatMap((one) => (one.status === "fulfilled" ? one.value : [])))),
    );
    return () => {
      current = false;
      for (const one of used) one.end();
    };
  }, [transport, session, names]);
  return rows;
}

/** `blob` has a type if it is a part of a bundle. */
async function rowsOf(blob: Blob, mime: string): Promise<string[]> {
  const look = lookOf(blob.type || mime);
  if (look === "html" && blob.size <= MAX_HTML) {
    const rows = sanitise(await blob.text(), "table").querySelectorAll("tr");
    return [...rows].map((row) => normalizeRow([...row.children].map((cell) => cell.textContent).join(" ")));
  }
  if (look !== "table") return [];
  const value = JSON.parse(await blob.text()) as unknown;
  if (!isRows(value)) return [];
  const { columns, rows } = gridOfRows(value);
  return [columns.map(({ name }) => name), ...rows.map((row) => row.map(({ text }) => text))].map((row) =>
    normalizeRow(row.join(" ")),
  );
}

/** The words of a row with one space between them. */
export const normalizeRow = (text: string): string => text.split(/\s+/).filter(Boolean).join(" ");
