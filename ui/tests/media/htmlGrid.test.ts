import { expect, test } from "vitest";
import { parseHtmlTable } from "../../src/media/htmlGrid";

const row = (...cells: string[]): string => `<tr>${cells.join("")}</tr>`;
const th = (text: string, more = ""): string => `<th ${more}>${text}</th>`;
const td = (text: string): string => `<td>${text}</td>`;
/** As pandas writes it. */
const pandas = (head: string, body: string, shape = ""): string =>
  `<div><style scoped>.dataframe th { vertical-align: top; }</style><table border="1" class="dataframe">` +
  `<thead>${head}</thead><tbody>${body}</tbody></table>${shape && `<p>${shape}</p>`}</div>`;

function parsed(html: string) {
  const grid = parseHtmlTable(html);
  if (!grid) throw new Error("it is a table");
  return { ...grid, texts: grid.rows.map((cells) => cells.map((cell) => cell.text)) };
}

test("columns have the kind of their cells, and the labels of rows are no column of the table", () => {
  const html = pandas(
    row(th(""), th("month"), th("mm"), th("day")),
    row(th("0"), td("May"), td("61.50"), td("2024-05-01")) + row(th("1"), td("None"), td("NaN"), td("NaT")),
  );
  const grid = parsed(html);
  expect(grid.columns.map(({ name, kind, isLabel }) => [name, kind, isLabel])).toEqual([
    ["", "number", true],
    ["month", "text", false],
    ["mm", "number", false],
    ["day", "date", false],
  ]);
  expect(grid.texts).toEqual([
    ["0", "May", "61.50", "2024-05-01"],
    ["1", "None", "NaN", "NaT"],
  ]);
  expect(grid.rows[1]?.map((cell) => cell.missing)).toEqual([false, true, true, true]);
  expect([grid.height, grid.width, grid.head]).toEqual([2, 3, 2]);
});

test("the dots of rows that were left out become the place where they are missing", () => {
  const html = pandas(
    row(th(""), th("mm")),
    row(th("0"), td("1")) + row(th("1"), td("2")) + row(th("..."), td("...")) + row(th("11999"), td("3")),
    "12,000 rows × 1 columns",
  );
  const grid = parsed(html);
  expect(grid.texts.map(([label]) => label)).toEqual(["0", "1", "11999"]);
  expect([grid.height, grid.head]).toEqual([12_000, 2]);
  expect(grid.columns[1]?.kind).toBe("number");
});

test("a row of dots in a whole table is a row", () => {
  const grid = parsed(pandas(row(th(""), th("said")), row(th("..."), td("..."))));
  expect(grid.texts).toEqual([["...", "..."]]);
});

test("columns that were left out are a gap, and are counted", () => {
  const html = pandas(
    row(th(""), th("a"), th("..."), th("z")),
    row(th("0"), td("1"), td("..."), td("2")) + row(th("1"), td("3"), td("..."), td("4")),
    "2 rows × 26 columns",
  );
  const grid = parsed(html);
  expect(grid.columns.map(({ kind }) => kind)).toEqual(["number", "number", "gap", "number"]);
  expect([grid.width, grid.height]).toEqual([26, 2]);
});

test("labels of several levels are repeated in their rows and have their names", () => {
  const html = pandas(
    row(th(""), th(""), th("mm")) + row(th("site"), th("kind"), th("")),
    row(th("a", 'rowspan="2"'), th("x"), td("1")) + row(th("y"), td("2")) + row(th("b"), th("x"), td("3")),
  );
  const grid = parsed(html);
  expect(grid.columns.map(({ name }) => name)).toEqual(["site", "kind", "mm"]);
  expect(grid.columns.map(({ isLabel }) => isLabel)).toEqual([true, true, false]);
  expect(grid.texts).toEqual([
    ["a", "x", "1"],
    ["a", "y", "2"],
    ["b", "x", "3"],
  ]);
});

test("names of several levels are joined", () => {
  const html = pandas(
    row(th(""), th("v", 'colspan="2"')) + row(th(""), th("mean"), th("sum")) + row(th("s"), th(""), th("")),
    row(th("a"), td("1.0"), td("1")),
  );
  expect(parsed(html).columns.map(({ name }) => name)).toEqual(["s", "v / mean", "v / sum"]);
});

test("polars writes types below the names, and the shape above", () => {
  const html =
    "<div><small>shape: (1_000, 2)</small><table><thead>" +
    row(th("mm"), th("name")) +
    row(td("i64"), td("str")) +
    "</thead><tbody>" +
    row(td("1"), td("&quot;x&quot;")) +
    row(td("&hellip;"), td("&hellip;")) +
    row(td("2"), td("null")) +
    "</tbody></table></div>";
  const grid = parsed(html);
  expect(grid.columns.map(({ name, type }) => [name, type])).toEqual([
    ["mm", "i64"],
    ["name", "str"],
  ]);
  expect(grid.texts).toEqual([
    ["1", '"x"'],
    ["2", "null"],
  ]);
  expect([grid.height, grid.head]).toEqual([1_000, 1]);
});

test("a table without rows has its columns", () => {
  const grid = parsed(pandas(row(th(""), th("a"), th("b")), ""));
  expect(grid.rows).toEqual([]);
  expect([grid.height, grid.width]).toEqual([0, 2]);
});

test.each([
  ["no table", "<p>1</p>"],
  ["two tables", pandas(row(th("a")), row(td("1"))).repeat(2)],
  ["a table with a text beside it", `Trained. ${pandas(row(th("a")), row(td("1")))}`],
  ["a table in a table", pandas(row(th("a")), row(td("<table><tr><td>1</td></tr></table>")))],
  ["a table without a head", "<table><tr><td>1</td></tr></table>"],
  ["rows of different length", pandas(row(th("a"), th("b")), row(td("1")))],
  ["a caption", "<table><caption>x</caption><thead><tr><th>a</th></tr></thead><tbody></tbody></table>"],
  ["a foot", "<table><thead><tr><th>a</th></tr></thead><tfoot><tr><td>1</td></tr></tfoot></table>"],
  ["a cell over more columns than there can be", pandas(row(th("a")), row(th("1", "colspan=1000")).repeat(300))],
])("%s is no table of data", (_, html) => {
  expect(parseHtmlTable(html)).toBeNull();
});

test("of the markup in a cell only the text is read", () => {
  const grid = parsed(pandas(row(th("a")), row(td("<b onclick=x>1</b><br><script>2</script><img src=x onerror=y>3"))));
  expect(grid.texts).toEqual([["1 3"]]);
});
