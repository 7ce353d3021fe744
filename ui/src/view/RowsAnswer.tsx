/** An answer that consists of the rows of an output. If the tables above it have all these rows, a sentence that refers
 * to the table is shown instead of the answer. Rows are compared as text. */
import type { ComponentChildren } from "preact";
import { trans } from "../translation/translation";
import type { RowsBlock } from "../turn/groups";
import { useContext, useEffect, useState } from "preact/hooks";
import { PanelContext } from "../conversation/panelContext";
import { sanitise } from "../markdown/sanitise";
import type { Medium } from "../wire/events";
import { acquireMedium } from "../media/bytes";
import { lookOf } from "../media/mediaTypes";
import { gridOfRows, isRows } from "../media/rows";
import { MAX_HTML } from "../media/Table";

/** A line that stands for rows that pandas leaves out. */
const LEFT_OUT = /^[.\s]*$/;

interface Rows {
  block: RowsBlock;
  session: string;
  /** The answer as it is shown if it does not repeat a table. */
  children: ComponentChildren;
}

/** While the tables are being loaded, the sentence is shown, because the answer usually repeats them. */
export function RowsAnswer({ block, session, children }: Rows) {
  const rows = useTableRows(block.tables, session);
  if (rows && !block.rows.split("\n").every((line) => isRowOf(rows, line))) return <>{children}</>;
  return <p class="ak-quiet">{trans.__("The result is the table above.")}</p>;
}

/** Whether `rows` has the row of this line of text, whose first word may be a row number that the table does not show. */
function isRowOf(rows: ReadonlySet<string>, line: string): boolean {
  const row = normalizeRow(line);
  return LEFT_OUT.test(row) || rows.has(row) || rows.has(row.replace(/^\d+ /, ""));
}

/** The rows, in the form of `normalizeRow`, of all tables among the media; null until they are loaded. A medium that
 * cannot be loaded has no rows. */
function useTableRows(media: readonly Medium[], session: string): ReadonlySet<string> | null {
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

/** The rows of a table in the form of `normalizeRow`; none for other media. `blob` has a type only if it is a part of a
 * MIME bundle; otherwise its type is `mime`. */
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
const normalizeRow = (text: string): string => text.split(/\s+/).filter(Boolean).join(" ");
