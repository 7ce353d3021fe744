"""The tool calls and the answer of a model that solves each task of the set ``tools``: rounds of native tool calls,
then the answer.

``{site}`` stands for the address of the task's pages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.scripted import python

Call = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RightRun:
    answer: str
    rounds: tuple[tuple[Call, ...], ...]


def run(answer: str, *rounds: str | Call | tuple[Call, ...]) -> RightRun:
    """Return a run. Each round is a program, one call, or several calls together."""
    given = [python(one) if isinstance(one, str) else one for one in rounds]
    return RightRun(answer, tuple(one if isinstance(one, tuple) else (one,) for one in given))


def page(path: str) -> Call:
    return {"name": "fetch_page", "arguments": {"url": "{site}" + path}}


def shop(tool: str, **arguments: object) -> Call:
    return {"name": f"shop_{tool}", "arguments": arguments}


PLOT = "import matplotlib.pyplot as plt\n"
RIGHT_RUNS = {
    "two branches": run(
        "The sum is 234.",
        "import pandas as pd\nnorth = pd.read_csv('north.csv')\nsouth = pd.read_csv('south.csv')",
        "both_sales = int(north.sales.sum() + south.sales.sum())\nboth_sales",
    ),
    "config and log": run(
        "There are 2.",
        "import json\nmax_ms = json.load(open('limits.json'))['max_ms']",
        "rows = [line.split() for line in open('calls.log')]\n"
        "slow_calls = sorted(name for name, ms in rows if int(ms) > max_ms)\nslow_calls",
    ),
    "newest parcel": run(
        "It is P2.", "open('parcels.txt').read()", "newest_parcel = max(open('parcels.txt')).split()[1]"
    ),
    "words of three files": run(
        "n3.txt has the most.",
        "word_counts = {f'n{i}.txt': len(open(f'n{i}.txt').read().split()) for i in (1, 2, 3)}",
        "max(word_counts, key=word_counts.get)",
    ),
    "members without a fee": run(
        "Bo and Di have not paid.",
        "import pandas as pd\nmembers, fees = pd.read_csv('members.csv'), pd.read_csv('fees.csv')",
        "unpaid = sorted(members[~members.id.isin(fees.id)].name)",
    ),
    "monthly totals": run(
        "February is the highest.",
        "bills.dtypes",
        "per_month = bills.groupby(pd.to_datetime(bills.date).dt.to_period('M')).eur.sum()\nper_month",
    ),
    "wide to long": run(
        "It has 4 rows.",
        "wide.columns",
        "temps = wide.melt(id_vars='city', var_name='month', value_name='value')",
    ),
    "clean prices": run(
        "The largest is 19.99.",
        "raw_prices",
        "import re\nfound = [re.search(r'\\d+[.,]\\d+', text) for text in raw_prices]\n"
        "clean_prices = [float(one[0].replace(',', '.')) for one in found if one]",
    ),
    "flat orders": run(
        "7 pieces of x.",
        "lines = [line for entry in nested_orders for line in entry['lines']]",
        "pieces_by_sku = {}\nfor line in lines:\n"
        "    pieces_by_sku[line['sku']] = pieces_by_sku.get(line['sku'], 0) + line['n']",
    ),
    "ranked scores": run(
        "Lee is second.", "ranking = sorted(game_scores, key=game_scores.get, reverse=True)", "ranking[1]"
    ),
    "line of a file": run(
        "The line is drawn.",
        "import pandas as pd\ntide = pd.read_csv('tide.csv')",
        PLOT + "plt.plot(tide.hour, tide.m)\nplt.show()",
    ),
    "bars of groups": run(
        "The bars are drawn.",
        "sums = visits.groupby('room').people.sum()",
        PLOT + "plt.bar(sums.index, sums.values)\nplt.show()",
    ),
    "plot with a title": run(
        "The line is drawn.",
        "len(weights)",
        PLOT + "plt.plot(weights)\nplt.title('Weight')\nplt.ylabel('kg')\nplt.show()",
    ),
    "smoothed line": run(
        "The line is drawn.",
        "smooth = [sum(noisy[i:i + 3]) / 3 for i in range(3)]",
        PLOT + "plt.plot(smooth)\nplt.show()",
    ),
    "two lines and a legend": run(
        "Both lines are drawn.",
        "len(plan), len(actual)",
        PLOT + "plt.plot(plan, label='plan')\nplt.plot(actual, label='actual')\nplt.legend()\nplt.show()",
    ),
    "save the filtered": run(
        "There are 2.",
        "import pandas as pd\nstars = pd.read_csv('stars.csv')",
        "bright = stars[stars.mag < 1]\nbright.to_csv('bright.csv', index=False)\nlen(bright)",
    ),
    "csv to json": run(
        "caps.json is saved.",
        "import csv\ncaps = {row['land']: row['capital'] for row in csv.DictReader(open('caps.csv'))}",
        "import json\nwith open('caps.json', 'w') as file:\n    json.dump(caps, file)",
    ),
    "save a picture": run(
        "The picture is saved.", "heights", PLOT + "plt.plot(heights)\nplt.savefig('heights.png')\nplt.close()"
    ),
    "split by kind": run(
        "Both files are written.",
        "import pandas as pd\npets = pd.read_csv('pets.csv')",
        "from pathlib import Path\nfor kind, names in pets.groupby('kind').name:\n"
        "    Path(f'{kind}s.txt').write_text('\\n'.join(names))",
    ),
    "report": run(
        "The sum is 180.",
        "total, longest = sum(minutes), max(minutes)",
        "from pathlib import Path\nPath('report.txt').write_text(f'total: {total}\\nlongest: {longest}\\n')",
    ),
    "fix the mean": run(
        "mean_of is right now.",
        "mean_of([2, 4])",
        "def mean_of(values):\n    return sum(values) / len(values)\nmean_of([2, 4])",
    ),
    "fix the module": run(
        "The area is 42.",
        "from pathlib import Path\nfile = Path('area_tools.py')\nfile.read_text()",
        "file.write_text(file.read_text().replace('width + height', 'width * height'))",
        "import area_tools\narea_tools.area(6, 7)",
    ),
    "fix the json": run(
        "The settings are loaded.",
        "import json\njson.load(open('broken.json'))",
        "from pathlib import Path\nfile = Path('broken.json')\n"
        "file.write_text(file.read_text().replace(',}', '}'))\nsettings = json.loads(file.read_text())",
    ),
    "fix the rows": run(
        "2 rows are left.",
        "from pathlib import Path\nfile = Path('rows.csv')\nfile.read_text()",
        "kept = [line for line in file.read_text().split() if ';' in line]\nfile.write_text('\\n'.join(kept) + '\\n')",
    ),
    "opening hours": run("It opens at 10:15.", page("/museum.html"), "opens_at = '10:15'"),
    "page to a file": run(
        "The longest is the Elbe.",
        page("/data.csv"),
        "with open('longest.txt', 'w') as file:\n    file.write('Elbe 1094')",
    ),
    "link of a page": run("There are 318 members.", page("/start.txt"), page("/figures-7.txt"), "members = 318"),
    "rate of a page": run("The sum is 448 SEK.", page("/rate.txt"), "sek_costs = [v * 11.2 for v in eur_costs]"),
    "two pages": run("Shop B: 74 EUR.", (page("/a.txt"), page("/b.txt")), "best_price = 74"),
    "stock of a lamp": run("The shop has 17 lamps.", shop("look_up", item="lamp"), "lamps = 17"),
    "order of kettles": run(
        "The number is A9817.",
        shop("order", item="kettle", pieces=4),
        "with open('kettles.txt', 'w') as file:\n    file.write('A9817')",
    ),
    "order that fits": run("It is A5373.", "guests", shop("order", item="clock", pieces=9), "clock_order = 'A5373'"),
    "worth of the vases": run("441 EUR.", shop("look_up", item="vase"), "vase_worth = 28 * 15.75"),
    "scarcest goods": run(
        "It is the rug.",
        shop("list_goods"),
        tuple(shop("look_up", item=item) for item in ("lamp", "kettle", "rug", "clock", "vase")),
        "scarcest = 'rug'",
    ),
    "shop and page": run(
        "The lower one is 21.90 EUR.",
        (shop("look_up", item="lamp"), page("/offer.txt")),
        "lower_price = min(24.5, 21.9)",
    ),
    "shop, file and picture": run(
        "Saved and drawn.",
        "wanted = open('wanted.txt').read().split()",
        tuple(shop("look_up", item=item) for item in ("lamp", "rug", "vase")),
        "import json\nstock = {'lamp': 17, 'rug': 3, 'vase': 28}\n"
        "with open('wanted.json', 'w') as file:\n    json.dump(stock, file)\n"
        + PLOT
        + "plt.bar(list(stock), list(stock.values()))\nplt.show()",
    ),
    "page, table and order": run(
        "The number is A2008.",
        (page("/needs.csv"), python("needed_clocks = 2 + 1 + 1")),
        shop("order", item="clock", pieces=4),
    ),
    "remove a rug": run(
        "There are 3 rugs. I could not remove the rug: it was denied.",
        shop("look_up", item="rug"),
        (python("rugs = 3"), shop("remove_item", item="rug")),
    ),
    "change a price": run(
        "The old price is 15.75 EUR. The change was denied.",
        "open('note.txt').read()",
        shop("look_up", item="vase"),
        (python("old_price = 15.75"), shop("change_price", item="vase", price=12.5)),
    ),
    "price before removal": run(
        "The price is 32.25 EUR. The removal failed: it was denied.",
        shop("look_up", item="clock"),
        "with open('clock.txt', 'w') as file:\n    file.write('32.25')",
        shop("remove_item", item="clock"),
    ),
}
