"""Tests that a table is described with the line that computes its amounts or its durations."""

from __future__ import annotations

import pytest

from agent_kernel.core.file_facts.computed_columns import describe_amount, describe_duration


@pytest.mark.parametrize(
    ("labels", "product"),
    [
        (["order_id", "quantity", "unit_price"], "t['quantity'] * t['unit_price']"),
        (["Quantity", "UnitPrice", "CustomerID"], "t['Quantity'] * t['UnitPrice']"),
        (["units sold", "Price per unit (EUR)"], "t['units sold'] * t['Price per unit (EUR)']"),
        (["Menge", "Einzelpreis"], "t['Menge'] * t['Einzelpreis']"),
        (["qty", "sales_price", 3], "t['qty'] * t['sales_price']"),
    ],
)
def test_a_quantity_and_a_price_give_the_amount(labels: list[object], product: str) -> None:
    assert describe_amount("t", labels).endswith(f". Compute it first: t['amount'] = {product}")


@pytest.mark.parametrize(
    "labels",
    [
        ["quantity", "unit_price", "total"],
        ["quantity", "unit_price", "sales_eur"],
        ["quantity", "price", "unit_price"],
        ["bedrooms", "price"],
        ["quantity", "price change"],
        ["quantity", "unit_cost"],
        ["quantity"],
        [],
    ],
)
def test_nothing_is_said_where_it_is_not_certain(labels: list[object]) -> None:
    assert describe_amount("t", labels) == ""


@pytest.mark.parametrize(
    ("dates", "difference"),
    [
        (["ship_dt", "deliv_dt"], "t['deliv_dt'] - t['ship_dt']"),
        (["Resolved at", "Created at"], "t['Resolved at'] - t['Created at']"),
        (["admission", "discharge"], "t['discharge'] - t['admission']"),
        (["Beginn", "Ende"], "t['Ende'] - t['Beginn']"),
    ],
)
def test_a_start_and_an_end_give_the_duration(dates: list[object], difference: str) -> None:
    expected = f". Compute it first: t['days'] = ({difference}).dt.total_seconds() / 86400"
    assert describe_duration("t", dates, ["price"]).endswith(expected)


@pytest.mark.parametrize(
    ("dates", "numbers"),
    [
        (["start", "end"], ["duration_s"]),
        (["start", "updated"], []),
        (["start", "end", "created"], []),
        (["order_date"], []),
    ],
)
def test_no_duration_is_computed_where_it_is_not_certain(dates: list[object], numbers: list[object]) -> None:
    assert describe_duration("t", dates, numbers) == ""
