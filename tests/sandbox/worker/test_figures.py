"""Tests figures, charts, tables and animations of sandboxed code: each is shown once, and never as markup."""

from __future__ import annotations

import io
import json
import sys

import PIL.Image
import pytest

from agent_kernel.core.messages import Media
from agent_kernel.core.protocols import Work
from agent_kernel.core.session import SessionKey
from agent_kernel.sandbox.host.chart_validation import TABLE
from agent_kernel.sandbox.host.policy import SandboxPolicy
from agent_kernel.sandbox.host.pool import LinuxSandbox
from tests.sandbox.conftest import Make

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
KEY = SessionKey("local", "one")
FILM = (
    "from matplotlib.animation import FuncAnimation\nfig, ax = plt.subplots(figsize=(2, 1))\n"
    "line, = ax.plot([0], [0], 'o')\nax.set_xlim(0, 9)\n"
    "anim = FuncAnimation(fig, lambda i: line.set_data([i], [0]), frames=6, interval=50)\n"
)


def image(media: Media) -> PIL.Image.Image:
    assert media.data is not None
    return PIL.Image.open(io.BytesIO(media.data))


async def test_no_figure_is_shown_twice(sandbox: LinuxSandbox) -> None:
    saved = await sandbox.run(KEY, "plt.plot([1, 2])\nplt.savefig('a.png')\nplt.show()")
    assert [media.mime for media in saved.media] == ["image/png"]
    closed = await sandbox.run(KEY, "plt.plot([1, 3])\nplt.savefig('b.png')\nplt.close()")
    assert [media.data for media in closed.media] == [(sandbox.workdir(KEY) / "b.png").read_bytes()]
    same = await sandbox.run(KEY, "for _ in range(2): plt.plot([1, 2]); plt.show()")
    assert len(same.media) == 1
    last = await sandbox.run(KEY, "f, a = plt.subplots()\na.plot([5])\nf")
    assert len(last.media) == 1
    displayed = await sandbox.run(KEY, "f, a = plt.subplots()\na.plot([5])\ndisplay(f)")
    assert (len(displayed.media), displayed.stdout) == (1, "")
    again = await sandbox.run(KEY, "plt.plot([1, 2])\nplt.show()")
    assert len(again.media) == 1
    gone = await sandbox.run(KEY, "plt.plot([1])\nplt.savefig('c.png')\nplt.close()\nos.remove('c.png')")
    assert (gone.status, gone.media) == ("success", ())


async def test_a_figure_is_drawn_with_its_own_resolution_within_bounds(sandbox: LinuxSandbox) -> None:
    code = (
        "for dpi in (None, 50, 200, 900):\n    plt.figure(figsize=(2, 2), dpi=dpi).add_axes([0, 0, 1, 1]).axis('off')\n"
    )
    result = await sandbox.run(KEY, code + "    plt.plot([1, 2])")
    widths = [image(media).width for media in result.media]
    assert [width / widths[0] for width in widths] == pytest.approx([1, 0.5, 2, 3], rel=0.1)


async def test_an_animation_moves_and_is_shown_once(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, FILM)
    assert [media.mime for media in result.media] == ["image/png"]
    film = image(result.media[0])
    assert (getattr(film, "n_frames", 1), film.info["duration"]) == (6, 50.0)
    saved = await sandbox.run(KEY, FILM + "anim.save('film.gif', writer='pillow')")
    assert [media.mime for media in saved.media] == ["image/gif"]
    assert saved.media[0].data == (sandbox.workdir(KEY) / "film.gif").read_bytes()
    value = await sandbox.run(KEY, FILM + "anim")
    assert len(value.media) == 1


async def test_an_animation_that_is_too_large_is_thinned_out_or_shown_as_its_first_frame(make: Make) -> None:
    sandbox = make(SandboxPolicy(warm=0, figure_mb=1))
    noise = "ax.imshow(np.random.rand(300, 400), aspect='auto')\nfig.set_size_inches(12, 9)\nanim\n"
    loud = FILM.replace("line.set_data([i], [0])", "ax.images[0].set_data(np.random.rand(300, 400))")
    result = await sandbox.run(KEY, loud.replace("anim = ", noise.replace("anim\n", "") + "anim = "))
    (still,) = result.media
    assert still.size <= 1 << 20
    assert getattr(image(still), "n_frames", 1) < 6


async def test_an_animation_without_end_is_shown_as_far_as_it_is_drawn(sandbox: LinuxSandbox) -> None:
    endless = FILM.replace("frames=6", "frames=iter(int, 1), save_count=10**6").replace("[i]", "[9 * np.random.rand()]")
    await sandbox.run(KEY, "x = 1\nimport matplotlib.animation, sys")
    result = await sandbox.run(KEY, Work(endless, timeout_s=60))
    assert result.status == "success"
    assert "up to its frame" in result.stderr
    assert getattr(image(result.media[0]), "n_frames", 1) > 1
    assert (await sandbox.run(KEY, "x")).value == "1"


async def test_drawing_can_be_interrupted_and_the_session_goes_on(sandbox: LinuxSandbox) -> None:
    slow = FILM.replace("line.set_data([i], [0])", "__import__('time').sleep(0.5)").replace("frames=6", "frames=100")
    await sandbox.run(KEY, "import matplotlib.animation, matplotlib.pyplot")  # takes seconds on a busy machine
    assert (await sandbox.run(KEY, Work("x = 1\n" + slow, timeout_s=2))).status == "timeout"
    after = await sandbox.run(KEY, "x")
    assert (after.value, after.lost) == ("1", "")


async def test_tables_come_as_cells_beside_their_text(sandbox: LinuxSandbox) -> None:
    code = (
        "df = pd.DataFrame({'month': pd.date_range('2020', periods=80), 'mean': [None, 1.5] * 40, 'n': range(80)})\n"
        "df['html'] = '<script>alert(1)</script>'\ndf"
    )
    result = await sandbox.run(KEY, code)
    (table,) = result.media
    assert table.mime == TABLE
    body = json.loads(table.data or b"")
    assert [column["name"] for column in body["columns"]] == ["month", "mean", "n", "html"]
    assert body["shape"] == [80, 4]
    assert (len(body["rows"]), body["index"][:2]) == (50, [0, 1])
    assert body["rows"][0] == ["2020-01-01 00:00:00", None, 0, "<script>alert(1)</script>"]
    assert "80 rows x 4 columns" in str(result.value)
    series = await sandbox.run(KEY, "df.groupby('html').n.sum()")
    assert json.loads(series.media[0].data or b"")["rows"] == [[3160]]
    shown = await sandbox.run(KEY, "display(df.head(2))")
    assert (len(shown.media), "month" in shown.stdout) == (1, True)


async def test_charts_come_as_data_and_one_that_loads_something_does_not(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(
        KEY, "import plotly.graph_objects as go\nfig = go.Figure(go.Bar(x=['a', 'b'], y=[1, 2]))\nfig.show()\nfig"
    )
    assert [media.mime for media in result.media] == ["application/vnd.plotly.v1+json"]
    assert json.loads(result.media[0].data or b"")["data"][0]["type"] == "bar"
    assert (result.value, result.stdout) == ("[plotly figure: bar]", "[plotly figure: bar]\n")
    bad = await sandbox.run(KEY, "fig.add_layout_image(source='https://evil.example/?' + str(1))\nfig")
    assert (bad.media, bad.status) == ((), "success")
    assert "may load data from another machine" in str(bad.error)


async def test_altair_charts_come_as_data(sandbox: LinuxSandbox) -> None:
    code = "import altair as alt\nalt.Chart(pd.DataFrame({'a': [1, 2]})).mark_bar().encode(x='a:Q')"
    result = await sandbox.run(KEY, code)
    (chart,) = result.media
    assert chart.mime.startswith("application/vnd.vegalite.v")
    assert json.loads(chart.data or b"")["mark"] == {"type": "bar"}
    assert "Chart" in str(result.value)


async def test_html_of_a_value_is_never_shown(sandbox: LinuxSandbox) -> None:
    code = (
        "class Page:\n    def _repr_html_(self): return '<script>alert(1)</script>'\n"
        "    def __repr__(self): return 'page'\nPage()"
    )
    result = await sandbox.run(KEY, code)
    assert (result.value, result.media) == ("page", ())


async def test_what_is_installed_is_listed_when_asked(sandbox: LinuxSandbox) -> None:
    result = await sandbox.run(KEY, "packages('NumPy')")
    assert str(result.value).startswith("numpy ")
    assert (await sandbox.run(KEY, "packages('no-such-thing')")).value == "(none)"
    assert (await sandbox.run(KEY, "len(packages()) > 20")).value == "True"
