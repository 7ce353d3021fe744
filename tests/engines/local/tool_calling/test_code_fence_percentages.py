"""Tests that a program which subtracts percentages from one gets their fractions."""

from __future__ import annotations

import pandas as pd
import pytest

from agent_kernel.core.file_facts.text_columns import describe_conversion
from agent_kernel.engines.local.tool_calling.code_fence_percentages import with_fractions_of_percentages

ORDERS = pd.DataFrame(
    {"price": [20.0, 10.0], "discount": ["10%", "0%"], "tax": ["19%", "7%"], "size": ["5 kg", "2 kg"]}
)
FACTS = "\n".join(
    ["Variables: orders: DataFrame", *(describe_conversion("orders", name, list(ORDERS[name])) for name in ORDERS)]
)
CONVERSION = "discount_percent = pd.to_numeric(orders['discount'].str.replace(r'[^\\d.-]', '', regex=True))\n"


@pytest.mark.parametrize(
    "code",
    [
        CONVERSION + "total = (orders['price'] * (1 - discount_percent)).sum()",
        CONVERSION + "discounted = 1 - discount_percent\ntotal = (orders.price * discounted).sum()",
        r"total = (orders.price * (1 - orders.discount.str.replace(r'[^\d.-]', '', regex=True).astype(float))).sum()",
        "share = orders['discount'].str.rstrip('%').astype(float)\ntotal = (orders['price'] * (1 - share)).sum()",
        "orders = orders.copy()\norders['discount'] = orders['discount'].str.rstrip('%').astype(float)\n"
        "total = (orders['price'] * (1 - orders['discount'])).sum()",
        "orders = orders.assign(discount_percent=orders['discount'].str.rstrip('%').astype(float))\n"
        "total = (orders['price'] * (1 - orders['discount_percent'])).sum()",
        CONVERSION + "total = (orders.price * (1 - discount_percent / 100)).sum()",
    ],
)
def test_a_price_after_discount_is_computed_with_the_fraction(code: str) -> None:
    namespace = {"pd": pd, "orders": ORDERS}
    exec(with_fractions_of_percentages(code, [FACTS]), namespace)
    assert namespace["total"] == pytest.approx(28.0)


def test_a_percentage_that_is_added_to_one_becomes_a_fraction_too() -> None:
    code = "gross = orders.price * (1 + tax_percent)"
    assert with_fractions_of_percentages(code, [FACTS]) == "gross = orders.price * (1 + tax_percent / 100)"


@pytest.mark.parametrize(
    "code",
    [
        "discount_percent.mean()",
        "orders[discount_percent > 5]",
        "1 - size_number",
        "1 - orders.price",
        "1 - discount_percent * 0.01",
        "2 - discount_percent",
        "1 - (discount_percent + 1)",
        "1 - discount_percent.mean(",
    ],
)
def test_other_code_stays(code: str) -> None:
    assert with_fractions_of_percentages(code, [FACTS]) == code
