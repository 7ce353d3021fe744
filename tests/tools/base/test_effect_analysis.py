from __future__ import annotations

import pytest

from agent_kernel.tools.base.effect_analysis import Effect, effects


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        ("x = 1 + 1\nprint(x)", []),
        ("df.to_csv('monthly.csv')", ["writes"]),
        ("text = df.to_csv()\nvalues = df.to_numpy()", []),
        ("open('a.txt').read()", []),
        ("open('a.txt', 'w').write('x')", ["writes"]),
        ("from pathlib import Path\nPath('a').open('ab')", ["writes"]),
        ("open('a', mode)", ["writes"]),
        ("plt.savefig('plot.png')", ["writes"]),
        ("np.save('a.npy', a)", ["writes"]),
        ("numbers.remove(3)\ndf.rename(columns={})\nseen = seen.copy()", []),
        ("import os, shutil\nos.remove('a')\nshutil.rmtree('b')", ["deletes", "deletes"]),
        ("import requests", ["network"]),
        ("from urllib.request import urlopen", ["network"]),
        ("pd.read_csv('https://example.org/a.csv')", ["network"]),
        ("import subprocess\nsubprocess.run(['ls'])", ["runs"]),
        ("os.system('ls')", ["runs"]),
        ("import time\ntime.sleep(60)", ["waits"]),
        ("x = (", ["unreadable"]),
    ],
)
def test_what_code_does_beside_computing_is_read_off_it(code: str, kinds: list[str]) -> None:
    assert [effect.kind for effect in effects(code)] == kinds


def test_an_effect_shows_its_expression_and_line() -> None:
    assert effects("x = 1\ndf.to_csv('a.csv')") == (Effect("writes", "df.to_csv('a.csv')", 2),)
    (long,) = effects(f"open('{'a' * 200}', 'w')")
    assert len(long.what) == 80
