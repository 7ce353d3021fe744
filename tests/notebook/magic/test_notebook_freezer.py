"""Tests notebooks for readers who do not have this package: made from documents and turns, and in a real kernel."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat

from agent_kernel.notebook.display.render import Card, TurnSummary, line_bundle, text_bundle
from agent_kernel.notebook.magic.notebook_freezer import FrozenTurn, freeze_notebook
from tests.notebook.notebook import Notebook
from tests.server import Json

CODE = "evens = [n for n in numbers if n % 2 == 0]\nprint(json.dumps(evens))"
TWOS: list[dict[str, Any]] = [
    {"when": "twos", "calls": [{"name": "python", "arguments": {"code": "twos = [2, 2]"}}]},
    {"when": "twos", "text": "Two **twos**."},
]
SCRIPT: list[dict[str, Any]] = [
    {"when": "even ones", "calls": [{"name": "python", "arguments": {"code": "not python at all"}}]},
    {"when": "even ones", "calls": [{"name": "python", "arguments": {"code": CODE}}]},
    {"when": "even ones", "text": "There are **two** <script>alert(1)</script>."},
    *TWOS,
    *TWOS,
    {"text": "Anything.", "loop": True},
]
PNG = {"output_type": "display_data", "data": {"image/png": "aGk=", "text/plain": "x"}, "metadata": {}}


def display_output(data: dict[str, Any]) -> Json:
    return {"output_type": "display_data", "data": data, "metadata": {}}


def stream_output(text: str) -> Json:
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


def cell(id: str, source: str, kind: str = "code", outputs: list[Json] | None = None) -> Json:
    made: Json = {"id": id, "cell_type": kind, "source": source, "metadata": {}}
    return {**made, "outputs": outputs or [], "execution_count": None} if kind == "code" else made


def document(*cells: Json) -> Json:
    return {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def as_it_is(code: str) -> str:
    return code


def sources(made: Json) -> list[tuple[str, str]]:
    return [(cell["cell_type"], cell["source"]) for cell in made["cells"]]


def test_an_agent_cell_becomes_its_question_its_code_and_its_answer() -> None:
    given = document(cell("t", "# Title", "markdown"), cell("a", "%%agent\ndraw", outputs=[PNG]), cell("b", "y = x"))
    turn = FrozenTurn("a", "draw", "Done.", (("x = np.ones(2)", "live"), ("x.sum()", "sandbox")))
    made = freeze_notebook(given, [turn], as_it_is)
    assert sources(made.document) == [
        ("markdown", "# Title"),
        ("markdown", "> draw"),
        ("code", "import numpy as np\nx = np.ones(2)"),
        ("code", "# Ran in the sandbox, on copies of the variables.\nx.sum()"),
        ("markdown", "Done."),
        ("code", "y = x"),
    ]
    assert made.document["cells"][3]["outputs"] == [PNG], "pictures stay"
    assert (made.turns, made.cells, made.unknown, made.bound) == (1, 2, 0, 0)
    nbformat.validate(nbformat.from_dict(made.document))
    assert given["cells"][1]["source"] == "%%agent\ndraw", "what was given is left alone"


def test_prompt_cells_become_questions_and_the_notebook_gets_a_kernel_that_others_have() -> None:
    asked = {**cell("b", "and then?"), "metadata": {"agent_kernel": {"ask": True}}}
    given = document(cell("a", "> draw\n> it"), asked, cell("c", "> never answered"))
    given["metadata"] = {"kernelspec": {"name": "agent-python", "display_name": "Agent prompts (Python)"}}
    turns = [FrozenTurn("a", "draw\nit", "Done.", (("x = 1", "live"),)), FrozenTurn("b", "and then?", "Nothing.", ())]
    made = freeze_notebook(given, turns, as_it_is)
    assert sources(made.document) == [
        ("markdown", "> draw\n> it"),
        ("code", "x = 1"),
        ("markdown", "Done."),
        ("markdown", "> and then?"),
        ("markdown", "Nothing."),
        ("markdown", "> never answered"),
    ]
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    assert made.document["metadata"]["kernelspec"] == spec
    assert given["metadata"]["kernelspec"]["name"] == "agent-python", "what was given is left alone"


def test_lines_that_need_the_package_are_comments_and_blocks_stay_blocks() -> None:
    source = "%load_ext agent_kernel\nif 1:\n    %agent status\nprint('%agent')"
    made = freeze_notebook(document(cell("a", source)), [], as_it_is)
    [(_, plain)] = sources(made.document)
    assert plain == "# %load_ext agent_kernel\nif 1:\n    pass  # %agent status\nprint('%agent')"
    compile(plain, "cell", "exec")


def test_what_can_not_be_frozen_is_counted() -> None:
    given = document(cell("a", "%%agent\nnever ran"), cell("b", "from agent_kernel import tool"))
    made = freeze_notebook(given, [], as_it_is)
    assert sources(made.document)[0] == ("markdown", "> %%agent\n> never ran")
    assert (made.unknown, made.bound) == (1, 1)


def test_an_agent_cell_without_an_answer_hides_no_code_of_the_panel() -> None:
    given = document(cell("a", "%%agent\nnever ran"))
    made = freeze_notebook(given, [FrozenTurn("", "in the panel", "", (("z = 1", "live"),))], as_it_is)
    assert ("code", "z = 1") in sources(made.document)
    assert (made.turns, made.unknown) == (1, 1)


def test_an_agent_cell_without_an_answer_keeps_its_words() -> None:
    answer = text_bundle("Of **long ago** <script>alert(1)</script>.")
    card = Card("c", "python", "live", "x = 1").bundle()
    around = [card, line_bundle("a line"), TurnSummary("t", "s").bundle()]
    outputs = [*map(display_output, around), display_output(answer), stream_output("1\n``` 2\n\x1b[31m"), PNG]
    made = freeze_notebook(document(cell("a", "%%agent\nlong ago", outputs=outputs)), [], as_it_is)
    assert sources(made.document) == [
        ("markdown", "> %%agent\n> long ago"),
        ("markdown", f"{answer['text/markdown']}\n\n````\n1\n``` 2\n````"),
    ]
    assert "<script" not in sources(made.document)[1][1]


def test_what_a_cell_asked_in_lines_stands_below_it_once() -> None:
    card = Card("c", "python", "live", "x = 1").bundle()
    of_its_own = [
        stream_output("Two.\n"),
        PNG,
        display_output({"text/html": "<details>mine</details>", "text/plain": "mine"}),
    ]
    outputs = [
        display_output(card),
        display_output(text_bundle("One.")),
        display_output(text_bundle("Two.")),
        *of_its_own,
    ]
    turns = [
        FrozenTurn("a", "one", "One.", (("x = 1", "live"),)),
        FrozenTurn("a#2", "two", "Two.", (("y = 2", "live"),)),
    ]
    given = document(cell("a", "%agent ask one\n%agent ask two", outputs=outputs), cell("b", "x + y"))
    made = freeze_notebook(given, turns, as_it_is)
    assert [source for _, source in sources(made.document)] == [
        "# %agent ask one\n# %agent ask two",
        *("> one", "x = 1", "One."),
        *("> two", "y = 2", "Two."),
        "x + y",
    ]
    assert made.document["cells"][0]["outputs"] == of_its_own
    later = freeze_notebook(document(cell("a", "x = 2", outputs=outputs)), turns, as_it_is).document
    assert later["cells"][0]["outputs"] == outputs, "a cell that asks no more is a cell of the person"
    assert later["cells"][1]["source"].startswith("Asked in the panel, or in cells that are not")


def test_the_newest_answer_of_a_cell_counts_and_code_of_the_panel_comes_last() -> None:
    turns = [
        FrozenTurn("a", "old", "Old.", ()),
        FrozenTurn("", "in the panel", "", (("z = 1", "live"),)),
        FrozenTurn("a", "new", "New.", ()),
    ]
    made = freeze_notebook(document(cell("a", "%%agent\nnew")), turns, as_it_is)
    assert [source for _, source in sources(made.document)] == [
        "> new",
        "New.",
        "Asked in the panel, or in cells that are not in this notebook any more:",
        "> in the panel",
        "z = 1",
    ]


def test_a_document_of_an_older_format_gets_no_ids() -> None:
    old = {**document(cell("a", "x = 1")), "nbformat_minor": 4}
    old["cells"][0].pop("id")
    made = freeze_notebook(old, [FrozenTurn("", "p", "", (("z = 1", "live"),))], as_it_is)
    assert all("id" not in cell for cell in made.document["cells"])
    nbformat.validate(nbformat.from_dict(made.document))


async def test_a_frozen_notebook_runs_in_plain_python_and_shows_the_same(fresh_notebook: Notebook) -> None:
    path = next(fresh_notebook.server.root.glob("test_a_frozen*.ipynb"))
    page = [cell("n", "numbers = [1, 2, 3, 4]"), cell("a", "%%agent --in live\neven ones"), cell("s", "%agent status")]
    path.write_text(json.dumps(document(*page)))
    for one in page:
        assert (await fresh_notebook.run(one["source"], cell=one["id"])).status == "ok"
    ran = await fresh_notebook.run("%agent freeze")
    assert "1 turn as text and 1 plain cell." in ran.plain, ran.all
    made = json.loads(path.with_suffix(".frozen.ipynb").read_text())
    nbformat.validate(nbformat.from_dict(made))
    assert "<script" not in json.dumps(made)
    code = "\n".join(cell["source"] for cell in made["cells"] if cell["cell_type"] == "code")
    assert run_without_packages(code) == "[2, 4]\n"
    assert (
        "exists already; choose another name, or add --yes to replace it."
        in (await fresh_notebook.run("%agent freeze")).error
    )
    assert (await fresh_notebook.run("%agent freeze --yes")).status == "ok"
    before = path.read_bytes()
    in_place = await fresh_notebook.run("%agent freeze --in-place")
    assert "The original is in" in in_place.plain
    assert path.with_suffix(".before-freeze.ipynb").read_bytes() == before
    assert "%%agent" not in path.read_text()
    assert "does not exist" in (await fresh_notebook.run("%agent freeze other.ipynb")).error


async def test_only_the_notebook_of_the_kernel_is_written_over_and_who_may_read_it_stays(
    fresh_notebook: Notebook,
) -> None:
    path = next(fresh_notebook.server.root.glob("test_only_the_notebook*.ipynb"))
    real, other, folder = path.with_name("real.txt"), path.with_name("other.ipynb"), path.with_name("below")
    folder.mkdir()
    namesake = folder / path.name
    page = json.dumps(document(cell("a", "%agent ask --in live twos"), cell("b", "twos")))
    for one in (path, other, namesake):
        one.write_text(page)
    other.chmod(0o600)
    path.chmod(0o640)
    path.rename(real)
    path.symlink_to(real)
    assert (await fresh_notebook.run("%agent ask --in live twos", cell="a")).status == "ok"
    for named in (other, namesake):
        refused = (await fresh_notebook.run(f"%agent freeze {named} --in-place")).error
        assert "is not the notebook of this kernel" in refused
        assert named.read_text() == page
    beside = await fresh_notebook.run("%agent freeze other.ipynb")
    assert "It is not the notebook of this kernel: only cells that ran" in beside.plain
    assert _mode(other.with_suffix(".frozen.ipynb")) == 0o600
    await fresh_notebook.run(f"%cd {folder}")
    written = await fresh_notebook.run("%agent freeze --in-place")
    assert "1 turn as text and 1 plain cell." in written.plain, written.all
    assert namesake.read_text() == page
    assert path.is_symlink()
    assert [one["source"] for one in json.loads(real.read_text())["cells"]] == [
        *("# %agent ask --in live twos", "> twos", "twos = [2, 2]", "Two **twos**.", "twos")
    ]
    assert [_mode(one) for one in (real, path.with_suffix(".before-freeze.ipynb"))] == [0o640, 0o640]


async def test_no_link_beside_the_notebook_leads_the_frozen_copy_or_the_backup_elsewhere(
    fresh_notebook: Notebook,
) -> None:
    path = next(fresh_notebook.server.root.glob("test_no_link_beside*.ipynb"))
    path.write_text(json.dumps(document(cell("a", "%agent ask --in live twos"))))
    await fresh_notebook.run("%agent ask --in live twos", cell="a")
    elsewhere = path.with_name("elsewhere.txt")
    for suffix, command in ((".frozen.ipynb", "freeze"), (".before-freeze.ipynb", "freeze --in-place")):
        link = path.with_suffix(suffix)
        link.symlink_to(elsewhere)
        for option in ("", " --yes"):
            assert "is a symbolic link" in (await fresh_notebook.run(f"%agent {command}{option}")).error
        assert not elsewhere.exists()


async def test_context_tells_what_the_next_turn_begins_with(fresh_notebook: Notebook) -> None:
    assert "has no session yet" in (await fresh_notebook.run("%agent context")).error
    await fresh_notebook.run("mine = 1\n%agent ask something")
    told = await fresh_notebook.run("%agent context")
    assert "1 turn of branch main" in told.plain
    assert "of 32,768 tokens (0%)" in told.plain
    assert "[------------------------]" in told.plain
    assert "mine" in told.plain
    [facts] = (await fresh_notebook.run("%agent context --json")).of("application/json")
    assert (facts["turns"], facts["variables"]) == (1, ["mine"])
    assert facts["tokens"] > 0
    assert "python" in facts["tools"]


def run_without_packages(code: str) -> str:
    """Run code in a Python without site packages and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True, check=True, cwd=Path("/")
    )
    return done.stdout


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_cell_that_set_a_variable_sets_it_without_the_agent_too() -> None:
    line = display_output(line_bundle("n: int = 3 (computed)"))
    answered = display_output(line_bundle("m: int = 4"))
    given = document(
        cell("a", "%%agent -> n: int\ncount", outputs=[line]),
        cell("b", "%%agent -> m: int\nguess", outputs=[answered]),
        cell("c", "%agent ask -> word 'Which?'", outputs=[display_output(line_bundle("word: str = 'It is.'"))]),
        cell("d", "%%agent -> t: DataFrame\nfilter"),
        cell("e", "%%agent -> gone: int\nfail", outputs=[display_output(text_bundle("No."))]),
    )
    turns = [
        FrozenTurn("a", "count", '{"value": 9}', (("xs = [1, 2, 3]\nprint(f'There are {len(xs)}')", "live"),)),
        FrozenTurn("b", "guess", '{"value": 4}', ()),
        FrozenTurn("c", "Which?", "It is.", ()),
        FrozenTurn("d", "filter", "Done.", (("xs[1:]", "live"),)),
        FrozenTurn("e", "fail", "No.", ()),
    ]
    made = freeze_notebook(given, turns, as_it_is)
    code = [source for kind, source in sources(made.document) if kind == "code"]
    namespace: dict[str, Any] = {}
    for source in code:
        exec(source, namespace)  # valid Python is what is tested
    assert {name: namespace[name] for name in ("n", "m", "word", "t")} == {
        "n": 3,
        "m": 4,
        "word": "It is.",
        "t": [2, 3],
    }
    assert "gone" not in namespace
