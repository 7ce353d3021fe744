/** Tables of data: sortable, and in pages. HTML that is no such table is sanitised and shown as it is. */
import { type ComponentChildren, Fragment } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { sanitise } from "../markdown/sanitise";
import { type IconName, Icon } from "../markdown/Icon";
import { formatNumber, trans } from "../translation/translation";
import { type Cell, type Column, countPages, type Grid, nextSorting, PAGE_ROWS, type Sorting, sortRows } from "./grid";
import { parseHtmlTable } from "./htmlGrid";
import { gridOfRows, type Rows } from "./rows";

export const MAX_HTML = 1_000_000;
/** A cell shows the beginning of a longer text, and the whole text when the mouse rests on the cell. */
const CUT_CHARS = 30;

interface Shown {
  label: string;
  /** Buttons for the whole table. */
  tools?: ComponentChildren;
}

export function RowsTable({ rows, ...shown }: Shown & { rows: Rows }) {
  return <Table grid={useMemo(() => gridOfRows(rows), [rows])} {...shown} />;
}

export function HtmlTable({ html, label, tools }: Shown & { html: string }) {
  const isLarge = html.length > MAX_HTML;
  const grid = useMemo(() => (isLarge ? null : parseHtmlTable(html)), [html]);
  if (grid) return <Table grid={grid} label={label} tools={tools} />;
  return (
    <>
      {isLarge ? (
        <p class="ak-media-note">{trans.__("This table is too large to show here.")}</p>
      ) : (
        <PlainHtml html={html} label={label} />
      )}
      <div class="ak-media-bar">{tools}</div>
    </>
  );
}

function PlainHtml({ html, label }: { html: string; label: string }) {
  const place = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => place.current?.replaceChildren(sanitise(html, "table")), [html]);
  return <div class="ak-scroll ak-table" role="group" aria-label={label} tabIndex={0} ref={place} />;
}

function Table({ grid, label, tools }: Shown & { grid: Grid }) {
  const [sorting, setSorting] = useState<Sorting | null>(null);
  const [page, setPage] = useState(0);
  const order = useMemo(() => sortRows(grid, sorting), [grid, sorting]);
  const from = Math.min(page, countPages(order.length) - 1) * PAGE_ROWS;
  const rowsShown = describePage(grid, from);
  const cut = describeCut(grid, sorting !== null);
  const place = useRef<HTMLDivElement>(null);
  const turnTo = (to: number) => {
    setPage(to);
    if (place.current) place.current.scrollTop = 0;
  };
  const sortBy = (column: number) => {
    setSorting(nextSorting(sorting, column));
    turnTo(0);
  };
  return (
    <>
      <div class="ak-scroll ak-table ak-grid" role="group" aria-label={label} tabIndex={0} ref={place}>
        <table class={grid.columns.filter((column) => column.isLabel).length === 1 ? "ak-pinned" : ""}>
          <thead>
            <tr>
              {grid.columns.map((column, number) => (
                <Head
                  key={number}
                  column={column}
                  sorted={sorting?.column === number ? (sorting.descending ? "descending" : "ascending") : "none"}
                  onSort={() => sortBy(number)}
                />
              ))}
            </tr>
          </thead>
          <tbody>
            {order.slice(from, from + PAGE_ROWS).map((row) => (
              <Fragment key={row}>
                {!sorting && row > 0 && row === grid.head && <Gap grid={grid} />}
                <tr>
                  {grid.rows[row]?.map((cell, number) => (
                    <Value key={number} cell={cell} column={grid.columns[number]} />
                  ))}
                </tr>
              </Fragment>
            ))}
          </tbody>
        </table>
      </div>
      <div class="ak-media-bar ak-table-foot">
        <span role="status">{rowsShown || cut}</span>
        {order.length > PAGE_ROWS && <Pager page={from / PAGE_ROWS} pages={countPages(order.length)} onTurn={turnTo} />}
        {tools}
        {rowsShown && cut && <span class="ak-table-cut">{cut}</span>}
      </div>
    </>
  );
}

/** The marks at the header of a column for its sort order. The mark `none` shows that the column can be sorted; it is
 * visible only while the mouse or the focus is at the header. */
const MARKS = { ascending: "▲", descending: "▼", none: "↕\uFE0E" };

interface HeadShown {
  column: Column;
  sorted: keyof typeof MARKS;
  onSort: () => void;
}

function Head({ column: { name, type, kind, isLabel }, sorted, onSort }: HeadShown) {
  if (kind === "gap") return <td class="ak-left-out">…</td>;
  const title = type ? `${name} (${type})` : name;
  return (
    <th scope="col" class={alignment(kind, isLabel)} aria-sort={sorted}>
      <button
        type="button"
        class="ak-sort"
        title={title}
        aria-label={name ? undefined : trans.__("Row labels")}
        onClick={onSort}
      >
        <span class="ak-sort-name">{name}</span>
        <span class="ak-sort-mark" aria-hidden="true">
          {MARKS[sorted]}
        </span>
      </button>
    </th>
  );
}

function Value({ cell: { text, missing }, column }: { cell: Cell; column: Column | undefined }) {
  const { kind = "text", isLabel = false } = column ?? {};
  const shown = {
    class: `${alignment(kind, isLabel)} ${missing ? "ak-missing" : ""}`.trim(),
    title: text.length > CUT_CHARS ? text : undefined,
  };
  if (isLabel)
    return (
      <th scope="row" {...shown}>
        {text}
      </th>
    );
  return <td {...shown}>{kind === "gap" ? "…" : text}</td>;
}

const alignment = (kind: Column["kind"], isLabel: boolean): string =>
  `${kind === "number" ? "ak-right" : ""} ${isLabel ? "ak-label" : ""}`.trim();

/** A row that says how many rows are left out at this place. It is shown only while the rows are in the order in which
 * they arrived. */
function Gap({ grid }: { grid: Grid }) {
  const count = grid.height - grid.rows.length;
  return (
    <tr class="ak-gap">
      <td colSpan={grid.columns.length}>
        <span>{trans._n("%1 row is left out", "%2 rows are left out", count, formatNumber(count))}</span>
      </td>
    </tr>
  );
}

function Pager({ page, pages, onTurn }: { page: number; pages: number; onTurn: (to: number) => void }) {
  return (
    <span class="ak-pager">
      <PageButton icon="left" label={trans.__("Previous rows")} isOff={page === 0} onPress={() => onTurn(page - 1)} />
      <PageButton
        icon="right"
        label={trans.__("Next rows")}
        isOff={page === pages - 1}
        onPress={() => onTurn(page + 1)}
      />
    </span>
  );
}

interface PageButtonShown {
  icon: IconName;
  label: string;
  isOff: boolean;
  onPress: () => void;
}

/** A button for the previous or next page. It can have the focus even while it is off, so that keyboard users stay in
 * the table at its last page. */
function PageButton({ icon, label, isOff, onPress }: PageButtonShown) {
  return (
    <button
      type="button"
      class="ak-code-tool"
      title={label}
      aria-label={label}
      aria-disabled={isOff}
      onClick={() => !isOff && onPress()}
    >
      <Icon name={icon} />
    </button>
  );
}

/** Text for the footer: which rows the page shows, or the numbers of rows and columns if the table has one page. Empty
 * if rows or columns are missing and there is one page. */
function describePage({ rows, height, width, columns }: Grid, from: number): string {
  const here = rows.length;
  if (here > PAGE_ROWS) {
    const to = Math.min(here, from + PAGE_ROWS);
    return trans.__("Rows %1 to %2 of %3", formatNumber(from + 1), formatNumber(to), formatNumber(here));
  }
  if (height > here || width > countValues(columns)) return "";
  const rowCount = trans._n("%1 row", "%1 rows", here);
  const columnCount = trans._n("%1 column", "%1 columns", width);
  return `${rowCount}, ${columnCount}`;
}

const countValues = (columns: readonly Column[]): number =>
  columns.filter((column) => !column.isLabel && column.kind !== "gap").length;

/** Text for the footer of a table that was cut: which rows and columns of the whole table arrived, and that only these
 * are sorted. Empty if all arrived. */
function describeCut({ rows, head, height, width, columns }: Grid, isSorted: boolean): string {
  const sentences: string[] = [];
  if (height > rows.length) {
    const [first, last, all] = [head, rows.length - head, height].map((count) => formatNumber(count));
    sentences.push(
      head < rows.length
        ? trans.__("The first %1 and the last %2 of %3 rows.", first, last, all)
        : trans.__("The first %1 of %2 rows.", first, all),
    );
    if (isSorted) sentences.push(trans.__("Only these rows are sorted."));
  }
  const here = countValues(columns);
  if (width > here) sentences.push(trans.__("%1 of %2 columns.", formatNumber(here), formatNumber(width)));
  return sentences.join(" ");
}
