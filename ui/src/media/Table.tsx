/** Tables: rows of values, or sanitised HTML, in a scrollable box. */
import { useLayoutEffect, useRef } from "preact/hooks";
import { sanitise } from "../markdown/sanitise";
import { trans } from "../translation/translation";

const MAX_HTML = 1_000_000;
const MAX_ROWS = 200;

export interface Rows {
  columns: { name: string; type: string }[];
  index: unknown[];
  rows: unknown[][];
  shape: number[];
}

export function isRows(value: unknown): value is Rows {
  if (typeof value !== "object" || value === null) return false;
  const { columns, index, rows, shape } = value as Partial<Rows>;
  if (![columns, index, rows, shape].every(Array.isArray)) return false;
  return (
    (columns ?? []).every((column: unknown) => typeof column === "object" && column !== null) &&
    (rows ?? []).every(Array.isArray) &&
    (shape ?? []).every((length: unknown) => typeof length === "number")
  );
}

export function Table({ rows: { columns, index, rows, shape }, label }: { rows: Rows; label: string }) {
  const shown = rows.slice(0, MAX_ROWS);
  const [height = rows.length, width = columns.length] = shape;
  return (
    <div class="ak-scroll ak-table" role="region" aria-label={label} tabIndex={0}>
      <table>
        <caption>
          {shown.length < height
            ? trans.__("%1 of %2 rows, %3 columns", shown.length, height, width)
            : trans.__("%1 rows, %2 columns", height, width)}
        </caption>
        <thead>
          <tr>
            {index.length > 0 && <td />}
            {columns.map((column, number) => (
              <th key={number} scope="col" title={inWords(column.type)}>
                {inWords(column.name)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row, number) => (
            <tr key={number}>
              {index.length > 0 && <th scope="row">{inWords(index[number])}</th>}
              {row.map((value, column) => (
                <td key={column} class={typeof value === "number" ? "ak-right" : ""}>
                  {inWords(value)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function HtmlTable({ html, label }: { html: string; label: string }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => place.current?.replaceChildren(sanitise(html, "table")), [html]);
  if (html.length > MAX_HTML) return <p class="ak-media-note">{trans.__("This table is too large to show here.")}</p>;
  return <div class="ak-scroll ak-table" role="region" aria-label={label} tabIndex={0} ref={place} />;
}

function inWords(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return value;
  try {
    return JSON.stringify(value);
  } catch {
    return trans.__("(nested too deeply to show)"); // unlike parsing, writing is recursive and may overflow the stack
  }
}
