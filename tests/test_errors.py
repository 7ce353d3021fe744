from agent_kernel import errors


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


def test_an_unknown_code_is_a_plain_error_with_its_words() -> None:
    error = errors.from_json({"code": "from_the_future", "message": "m"})
    assert type(error) is errors.AgentKernelError
    assert str(error) == "m"


def test_every_error_of_the_tree_is_drawn_in_the_docstring() -> None:
    drawn = errors.__doc__ or ""
    assert [kind.__name__ for kind in errors.BY_CODE.values() if kind.__name__ not in drawn] == []
