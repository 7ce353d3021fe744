import pytest

from agent_kernel.core import errors
from jupyter_ext.api.dialects.openai_errors import openai_error


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *[(status, "invalid_request_error") for status in (400, 404, 405, 409, 410, 413, 415, 422)],
        (401, "authentication_error"),
        (403, "permission_error"),
        (429, "rate_limit_error"),
        *[(status, "server_error") for status in (500, 502, 503, 507)],
    ],
)
def test_the_type_of_an_error_says_whose_it_is(status: int, kind: str) -> None:
    assert openai_error(status, errors.InvalidRequest("no").to_json())["type"] == kind


def test_an_error_has_openais_keys_and_ours() -> None:
    error = errors.UnknownModel("There is none.", hint="Ask for another.", details={"param": "model", "other": 1})
    assert openai_error(404, error.to_json()) == {
        "message": "There is none. Ask for another.",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
        "hint": "Ask for another.",
    }


def test_an_error_that_says_nothing_has_the_keys_too() -> None:
    assert openai_error(500, {}) == {"message": "", "type": "server_error", "param": None, "code": None}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.ContextOverflow("too long"), "context_length_exceeded"),
        (errors.Unauthenticated("no token"), "invalid_api_key"),
        (errors.TooManyRequests("too many"), "rate_limit_exceeded"),
        (errors.BudgetSpent("no tokens left"), "insufficient_quota"),
        (errors.InvalidRequest("no", details={"code": "item_not_found"}), "item_not_found"),
    ],
)
def test_an_error_has_the_code_that_programs_look_for(error: errors.AgentKernelError, code: str) -> None:
    assert openai_error(400, error.to_json())["code"] == code
