"""Tests that a program does not narrow a table of the user unless the question asks for it."""

from __future__ import annotations

import pandas as pd
import pytest

from agent_kernel.core.programs.kept_variables import with_kept_variables

QUESTION = "What is the median speed of the trips longer than 5 km?"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            "trips = trips[trips['km'] > 5]\nprint(trips['speed'].median())",
            "trips_selected = trips[trips['km'] > 5]\nprint(trips_selected['speed'].median())",
        ),
        (
            "trips = trips.query('km > 5')\nprint(f\"Of trips: {trips['speed'].median():.2f}, {len(trips)} trips\")",
            "trips_selected = trips.query('km > 5')\n"
            "print(f\"Of trips: {trips_selected['speed'].median():.2f}, {len(trips_selected)} trips\")",
        ),
        (
            "trips = trips[trips['km'] > 5]\ntrips = trips.sort_values('km')\nprint(trips.head(5)['km'])",
            "trips_selected = trips[trips['km'] > 5]\ntrips_selected = trips_selected.sort_values('km')\n"
            "print(trips_selected.head(5)['km'])",
        ),
        (
            "note = 'a\x0cb'\ntrips = trips[trips['km'] > 5]\ntrips['speed'].median()",
            "note = 'a\x0cb'\ntrips_selected = trips[trips['km'] > 5]\ntrips_selected['speed'].median()",
        ),
        (
            "trips['speed'] = trips['km'] / trips['h']\ntrips = trips.loc[trips['km'] > 5]\ntrips['speed'].median()",
            "trips['speed'] = trips['km'] / trips['h']\ntrips_selected = trips.loc[trips['km'] > 5]\n"
            "trips_selected['speed'].median()",
        ),
    ],
)
def test_the_rows_of_a_table_of_the_user_get_a_variable_of_their_own(code: str, expected: str) -> None:
    assert with_kept_variables(code, QUESTION, ["trips"]) == expected
    trips = pd.DataFrame({"km": [1.0, 6.0, 9.0], "h": [1.0, 2.0, 2.0], "speed": [1.0, 3.0, 4.5]})
    names = {"trips": trips}
    exec(expected, names)
    assert len(names["trips"]) == 3


@pytest.mark.parametrize(
    ("question", "code", "variables"),
    [
        ("Remove the short trips.", "trips = trips[trips['km'] > 5]\nprint(len(trips))", ["trips"]),
        ("Keep the long ones as trips", "trips = trips[trips['km'] > 5]\nprint(len(trips))", ["trips"]),
        ("Take the long ones and call it trips", "trips = trips[trips['km'] > 5]\nprint(len(trips))", ["trips"]),
        ("Which are long?", "trips = trips[trips['km'] > 5]\ntrips['long'] = True\nprint(trips)", ["trips"]),
        ("Which are long?", "trips = trips.sort_values('km')\nprint(trips)", ["trips"]),
        ("Which are long?", "trips = read()\ntrips = trips[trips['km'] > 5]\nprint(trips)", []),
        ("Which are long?", "trips = trips[", ["trips"]),
    ],
)
def test_other_programs_stay_as_they_are(question: str, code: str, variables: list[str]) -> None:
    assert with_kept_variables(code, question, variables) == code
