"""Converts the output type that a program requests (a Python type, a JSON schema, a list of choices or a pattern) to
fields of a request, and the text of the answer to a value of that type."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_kernel.core.errors import InvalidRequest, OutputInvalid


@dataclass(frozen=True, slots=True)
class OutputType:
    """The type that a program requests for an answer. ``wire`` is what the client sends to the server; ``read``
    converts the text of an answer to a value."""

    wire: Mapping[str, Any]
    read: Callable[[str], Any] = field(repr=False)

    def value(self, text: str) -> Any:
        """Convert the text of an answer to a value of this type. Raises OutputInvalid if the text does not represent
        such a value."""
        try:
            return self.read(text)
        except ValueError as error:
            raise OutputInvalid(
                "The answer does not match the requested format.", details={"text": text, "reason": str(error)}
            ) from error


def shape_of(output: Any) -> OutputType:
    """Convert ``output`` to an OutputType. It can be a pydantic model or any type that pydantic can validate, a JSON
    schema (a dict), ``"json"``, a list of the allowed answers, or a compiled pattern. Raises InvalidRequest for
    anything else."""
    if isinstance(output, OutputType):
        return output
    if output in ("json", "json_object"):
        return OutputType({"kind": "json_object"}, json.loads)
    if isinstance(output, re.Pattern):
        return OutputType({"kind": "regex", "regex": output.pattern}, str)
    if isinstance(output, Mapping):
        return OutputType({"kind": "json_schema", "json_schema": dict(output)}, json.loads)
    if (
        isinstance(output, Sequence)
        and not isinstance(output, str)
        and all(isinstance(choice, str) for choice in output)
    ):
        return OutputType({"kind": "choice", "choice": list(output)}, str)
    return _output_type(output)


def _output_type(kind: Any) -> OutputType:
    import pydantic

    try:
        adapter = pydantic.TypeAdapter(kind)
        schema = adapter.json_schema()
    except (pydantic.errors.PydanticUserError, pydantic.PydanticSchemaGenerationError) as error:
        raise InvalidRequest(f"{kind!r} cannot be the type of an answer: {str(error).splitlines()[0]}") from error
    name = re.sub(r"[^A-Za-z0-9_-]", "_", getattr(kind, "__name__", "answer"))[:64]
    return OutputType({"kind": "json_schema", "json_schema": schema, "name": name}, adapter.validate_json)
