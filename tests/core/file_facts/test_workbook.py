"""Tests how workbooks are described: a prompt in a cell names the file, as a user's does."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from agent_kernel.engines.local.tool_calling.code_fence_file_loading import reading_lines
from agent_kernel.engines.local.tool_calling.code_fence_merge import find_missing_merge
from agent_kernel.notebook.turn.file_previews import MAX_WORKBOOK_BYTES, describe_files


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_workbook_is_told_by_its_sheets_and_first_rows(here: Path) -> None:
    with pd.ExcelWriter("a.xlsx") as book:
        pd.DataFrame({"tea": ["Assam", None, "Sencha", "Rooibos"], "price": [7.5, 1, 12.9, 5]}).to_excel(
            book, sheet_name="Prices", index=False
        )
        pd.DataFrame({"x": [1]}).to_excel(book, sheet_name="Notes")
    fact, *rows = describe_files("a.xlsx").splitlines()
    assert fact.startswith("a.xlsx: table read by pd.read_excel('a.xlsx'), ")
    assert fact.endswith("('a.xlsx'), 4 rows x 2 columns: tea str, price float64, sheets: Prices, Notes")
    assert rows[:4] == ["    tea,price", "    Assam,7.5", "    ,1", "    Sencha,12.9"]
    other = "    sheet Notes read by pd.read_excel('a.xlsx', sheet_name='Notes'): Unnamed: 0, x"
    assert rows[4:] == ["    missing values: tea 1", other]
    facts = [f"Files: {describe_files('a.xlsx')}"]
    assert reading_lines("What is in a.xlsx?", facts, []) == "a = pd.read_excel('a.xlsx')\n"
    notes = "notes = pd.read_excel('a.xlsx', sheet_name='Notes')\n"
    assert reading_lines("What do the notes of a.xlsx say?", facts, []) == notes
    both = reading_lines("Compare the prices and notes in a.xlsx.", facts, [])
    assert both == "a = pd.read_excel('a.xlsx')\n" + notes


def test_the_rows_above_the_header_of_a_workbook_are_skipped(here: Path) -> None:
    table = pd.DataFrame([["Prices of 2025", None], [None, None], ["tea", "price"], ["Assam", 7.5], ["Sencha", 12.9]])
    table.to_excel("a.xlsx", index=False, header=False)
    fact, *rows = describe_files("a.xlsx").splitlines()
    columns = "2 rows x 2 columns: tea str, price float64, sheets: Sheet1"
    assert fact == f"a.xlsx: table read by pd.read_excel('a.xlsx', skiprows=2), {columns}"
    assert rows == ["    tea,price", "    Assam,7.5", "    Sencha,12.9"]
    assert list(pd.read_excel("a.xlsx", skiprows=2).columns) == ["tea", "price"]


@pytest.mark.parametrize("notes", [False, True])
def test_sheets_with_the_same_columns_are_one_table_without_titles_and_totals(here: Path, *, notes: bool) -> None:
    with pd.ExcelWriter("visits.xlsx") as book:
        for month, days in (("Jan", 31), ("Feb", 28)):
            rows: list[list[Any]] = [[f"Visits in {month}", None, None], ["day", "ward", "n"]]
            rows += [[day, "AB"[day % 2], day] for day in range(1, days + 1)]
            rows += [["Total", None, days * (days + 1) // 2]]
            pd.DataFrame(rows).to_excel(book, sheet_name=month, index=False, header=False)
        if notes:
            pd.DataFrame({"from": ["Ada"]}).to_excel(book, sheet_name="Notes", index=False)
    told = describe_files("a question about visits.xlsx")
    assert "59 rows x 4 columns: sheet str, day int64, ward str, n int64, sheets: Jan, Feb" in told
    assert "\n    sheet values: Jan, Feb\n" in told
    names: dict[str, Any] = {"pd": pd}
    exec(reading_lines("Which ward in visits.xlsx had most visits?", [f"Files: {told}"], []), names)
    visits = names["visits"]
    assert visits.groupby("sheet")["n"].sum().to_dict() == {"Jan": 496, "Feb": 406}
    assert list(visits.columns) == ["sheet", "day", "ward", "n"]
    assert visits.index.is_unique
    assert visits["n"].dtype == "int64"
    assert "columns: month str, day int64" in describe_files("visits.xlsx has one sheet per month.")


def test_a_report_with_a_cover_subtotals_and_labels_of_groups_is_read_as_a_table(here: Path) -> None:
    cover = pd.DataFrame([[None, None], [None, "Quarterly report"], [None, "by finance"]])
    report: list[list[Any]] = [
        ["Roastery"],
        ["Q3", None, None, "confidential"],
        [],
        ["Region", "Product", "Units", "EUR"],
    ]
    for region, units in (("North", (3, 4)), ("East", (5, None))):
        report += [[region, "Beans", units[0], 9], [None, "Decaf", units[1], 8], [None, "Subtotal", 7, 17], []]
    report += [["Grand total", None, 12, 34]]
    with pd.ExcelWriter("q3.xlsx") as book:
        cover.to_excel(book, sheet_name="Cover", index=False, header=False)
        full = [[*row, *[None] * 4][:4] for row in report]
        pd.DataFrame(full).to_excel(book, sheet_name="Q3 sales", index=False, header=False)
    told = describe_files("Which region in q3.xlsx sold most?")
    assert "4 rows x 4 columns: Region str, Product str, Units float64, EUR int64, sheets: Q3 sales, Cover" in told
    names: dict[str, Any] = {"pd": pd}
    exec(reading_lines("Which region in q3.xlsx sold most?", [f"Files: {told}"], []), names)
    # A missing number stays missing, so the labels of the groups are not filled either.
    assert names["q3"].to_dict("list")["Product"] == ["Beans", "Decaf", "Beans", "Decaf"]
    assert names["q3"]["Units"].sum() == 12


def test_labels_of_groups_are_repeated_if_nothing_else_is_missing(here: Path) -> None:
    rows = [["Region", "Product", "Units"], ["North", "Beans", 3], [None, "Decaf", 4], ["East", "Beans", 5]]
    rows += [[None, "Decaf", -999], [None, "Tea", 6]]
    pd.DataFrame(rows).to_excel("groups.xlsx", index=False, header=False)
    question = "Units per region in groups.xlsx? -999 means missing."
    told = describe_files(question)
    assert "\n    Region values: North, East" in told
    names: dict[str, Any] = {"pd": pd}
    exec(reading_lines("Units per region in groups.xlsx?", [f"Files: {told}"], []), names)
    assert names["groups"].groupby("Region")["Units"].sum().to_dict() == {"North": 7, "East": -988}
    with_codes = reading_lines(question, [f"Files: {told}"], [])
    assert with_codes == "groups = pd.read_excel('groups.xlsx', na_values=[-999]).ffill()\n"


def test_an_ordinary_word_of_the_question_names_a_sheet_only_if_it_speaks_of_sheets(here: Path) -> None:
    with pd.ExcelWriter("fees.xlsx") as book:
        pd.DataFrame({"who": ["Ada", "Bo"], "fee": [5, 7]}).to_excel(book, sheet_name="Fees", index=False)
        pd.DataFrame({"kind": ["fees"], "sum": [12], "mean": [6]}).to_excel(book, sheet_name="Total", index=False)
        pd.DataFrame({"code": ["x"], "count": [1]}).to_excel(book, sheet_name="A", index=False)
    assert "columns: who str, fee int64" in describe_files("What is a total in fees.xlsx?")
    assert "columns: kind str, sum int64" in describe_files("What is the mean on sheet Total of fees.xlsx?")


def test_sheets_with_the_same_columns_in_another_order_are_one_table(here: Path) -> None:
    with pd.ExcelWriter("fees.xlsx") as book:
        pd.DataFrame({"day": [1, 2], "who": ["Ada", "Bo"], "fee": [5, 7]}).to_excel(book, sheet_name="Jan", index=False)
        frame = pd.DataFrame({"who": ["Bo"], "fee": [9], "day": [3], "note": ["late"]})
        frame.to_excel(book, sheet_name="Feb", index=False)
        pd.DataFrame({"who": ["Ada"], "phone": [123]}).to_excel(book, sheet_name="People", index=False)
    told = describe_files("Who paid most in fees.xlsx?")
    assert "3 rows x 5 columns: sheet str, day int64, who str, fee int64, note str, sheets: Jan, Feb, People" in told
    names: dict[str, Any] = {"pd": pd}
    exec(reading_lines("Who paid most in fees.xlsx?", [f"Files: {told}"], []), names)
    assert names["fees"].groupby("who")["fee"].sum().to_dict() == {"Ada": 5, "Bo": 16}
    assert list(names["fees"]) == ["sheet", "day", "who", "fee", "note"]


def test_other_sheets_are_read_and_merged_if_the_question_speaks_of_them(here: Path) -> None:
    with pd.ExcelWriter("cafe.xlsx") as book:
        pd.DataFrame({"Item": ["Tea", "Cake"], "Price": [2.5, 4.0]}).to_excel(book, sheet_name="Menu", index=False)
        sold = pd.DataFrame({"item": ["tea", "cake", "tea"], "Units": [3, 1, 2]})
        sold.to_excel(book, sheet_name="Sold week 1", index=False)
    told = describe_files("cafe.xlsx")
    reading = reading_lines(
        "cafe.xlsx: the sheet Menu has the prices, the other sheet the units.", [f"Files: {told}"], []
    )
    first = "cafe = pd.read_excel('cafe.xlsx')\n"
    assert reading == first + "sold_week_1 = pd.read_excel('cafe.xlsx', sheet_name='Sold week 1')\n"
    missing = find_missing_merge(reading + "print(cafe['Price'] * sold_week_1['Units'])", reading, [told])
    assert missing is not None
    names: dict[str, Any] = {"pd": pd}
    exec(reading + missing.line, names)
    merged = names["sold_week_1_merged"]
    assert (merged["Units"] * merged["Price"]).to_list() == [7.5, 4.0, 5.0]


def test_dates_that_are_text_in_a_workbook_are_read_as_dates(here: Path) -> None:
    pd.DataFrame({"day": ["2024-01-05", "2024-02-07"], "n": [1, 2]}).to_excel("a.xlsx", index=False)
    told = describe_files("a.xlsx")
    assert "read by pd.read_excel('a.xlsx', parse_dates=['day']), 2 rows x 2 columns: day date, n int64" in told
    pd.DataFrame({"day": pd.to_datetime(["2024-01-05", None]), "n": [1, 2]}).to_excel("a.xlsx", index=False)
    assert "read by pd.read_excel('a.xlsx'), 2 rows x 2 columns: day date, n int64" in describe_files("a.xlsx")


def test_a_workbook_keeps_the_types_of_its_cells_and_may_have_only_a_header(here: Path) -> None:
    pd.DataFrame({"points": [14, "absent", 16.5], "n": [1, 2, 3]}).to_excel("a.xlsx", index=False)
    (fact,) = [line for line in describe_files("a.xlsx").splitlines() if line.startswith("a[")]
    namespace: dict[str, Any] = {"pd": pd, "a": pd.read_excel("a.xlsx")}
    exec(fact.partition("Convert it first: ")[2], namespace)
    assert namespace["points_number"].sum() == 30.5
    pd.DataFrame({"tea": [], "price": []}).to_excel("b.xlsx", index=False)
    assert describe_files("b.xlsx").splitlines()[1:] == ["    tea,price"]


def test_a_workbook_that_unpacks_to_too_much_is_not_read(here: Path) -> None:
    pd.DataFrame({"tea": ["Assam"]}).to_excel("a.xlsx", index=False)
    assert "sheets: Sheet1" in describe_files("a.xlsx")
    with zipfile.ZipFile("a.xlsx", "a", zipfile.ZIP_DEFLATED) as book:
        book.writestr("xl/media/bomb.bin", b" " * MAX_WORKBOOK_BYTES)
    assert Path("a.xlsx").stat().st_size < MAX_WORKBOOK_BYTES / 100
    assert describe_files("a.xlsx").endswith(" bytes")
