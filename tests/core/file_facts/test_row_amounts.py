"""Tests that a table with quantities and prices is described with the product that gives its amounts."""

from __future__ import annotations

import pytest

from agent_kernel.core.file_facts.row_amounts import describe_amount


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
