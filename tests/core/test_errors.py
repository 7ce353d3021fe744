import ast
import re
from pathlib import Path

from agent_kernel.core import errors
from agent_kernel.notebook.kernel.one_line_errors import to_short_error


def test_a_code_is_the_name_of_its_class() -> None:
    assert errors.SessionBusy("x").code == "session_busy"
    assert errors.AgentKernelError("x").code == "agent_kernel_error"


def test_an_error_survives_the_wire() -> None:
    error = errors.ModelMissing("not here", hint="pull it", details={"size": 3})
    again = errors.from_json(error.to_json())
    assert (type(again), again.message, again.hint, again.details) == (
        errors.ModelMissing,
        "not here",
        "pull it",
        {"size": 3},
    )


def test_clients_learn_the_file_of_a_store_and_not_its_directory() -> None:
    error = errors.StoreFull("No space left for /home/ada/x/sessions.db.", hint="Move /home/ada/x/sessions.db (1/2).")
    assert "/home/ada/x/" in str(error)
    assert (error.to_json()["message"], error.to_json()["hint"]) == (
        "No space left for …/sessions.db.",
        "Move …/sessions.db (1/2).",
    )
    assert errors.client_text(error) == "No space left for …/sessions.db. Move …/sessions.db (1/2)."
    windows = errors.StoreError(r"C:\Users\ada\sessions.db: no; postgresql://h/db and https://a.org/b/c stay")
    assert windows.to_json()["message"] == "…/sessions.db: no; postgresql://h/db and https://a.org/b/c stay"


def test_an_unknown_code_is_a_plain_error_with_its_words() -> None:
    error = errors.from_json({"code": "from_the_future", "message": "m"})
    assert type(error) is errors.AgentKernelError
    assert str(error) == "m"


def test_every_error_of_the_tree_is_drawn_in_the_docstring() -> None:
    drawn = errors.__doc__ or ""
    assert [kind.__name__ for kind in errors.BY_CODE.values() if kind.__name__ not in drawn] == []


def test_texts_that_reach_programs_and_terminals_name_no_command_of_the_notebook() -> None:
    """A client of the API and a person in a terminal have no ``%agent``: the notebook adds its commands itself."""
    root = Path(__file__).parents[2]
    # The second writes cells, and the third recognises them; neither has texts for a person.
    own = [root / "agent_kernel" / name for name in ("notebook", "evaluation", "core/wire/agent_cells.py")]
    found = [
        f"{path.relative_to(root)}:{node.lineno}"
        for package in ("agent_kernel", "jupyter_ext")
        for path in (root / package).rglob("*.py")
        if not any(path.is_relative_to(folder) for folder in own) and "%agent" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.search(r"(?<!%)%agent", node.value) and "``%agent" not in node.value
    ]
    assert found == []


def test_texts_lead_to_no_page_that_an_installed_package_does_not_have() -> None:
    root = Path(__file__).parents[2]
    found = [
        f"{path.relative_to(root)}:{node.lineno}"
        for package in ("agent_kernel", "jupyter_ext")
        for path in (root / package).rglob("*.py")
        if "docs/" in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if "\n" not in node.value and re.search(r"\bdocs/(?:[a-z-]+\.md| )", node.value)
    ]
    assert found == []


def test_in_a_notebook_the_line_of_an_error_names_the_command_that_helps() -> None:
    assert str(to_short_error(errors.ContextOverflow("Too long.", hint="Start another session."))).endswith(
        "Start another session. %agent new starts one."
    )
    assert "%agent model lists" in str(to_short_error(errors.UnknownModel("There is none.")))
    assert str(to_short_error(errors.Conflict("Busy."))) == "Busy."
