"""Defines the fields that the dialects have in addition to the original APIs: the number of rounds of tool calls,
permissions, files that a turn must produce, and constraints on the answer under the names of vLLM and mistral.rs. The
module has no side effects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from agent_kernel.core.errors import AgentKernelError, Unprocessable
from agent_kernel.core.files import RequestedFile
from agent_kernel.core.protocols import OutputFormat
from agent_kernel.core.settings import Permission
from agent_kernel.tools.base.declared_schema import check_schema
from jupyter_ext.api.dialects.openai_functions import JsonSchema, Words
from jupyter_ext.turns.dialect_request import DialectRequest

MAX_ROUNDS = 1_000_000
Rounds = Annotated[int, Field(ge=0, le=MAX_ROUNDS)]
CODE_HINT = "Use the model agent/NAME, or code_interpreter among the tools."
OF_FILES = {"param": "files"}


def text_or_list(value: object) -> str:
    """Return which member of the union ``value`` belongs to: text or list. With this tag, one mistake in a request
    produces one validation error and not an error for each member."""
    return "[text]" if isinstance(value, str) else "[list]"


class WantedFile(Words):
    """A file that the turn must produce, by its name in the work directory."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    format: Annotated[str, Field(max_length=40)] | None = None
    description: Annotated[str, Field(max_length=1_000)] | None = None

    @property
    def wanted(self) -> RequestedFile:
        return RequestedFile(self.name, self.format or "", self.description or "")


class AgentFields(Words):
    """The fields that limit how a request uses the server's tools. ``code_execution_permission`` is mistral.rs's name
    for ``agent_permission``. ``extensions`` are the further fields of a subclass that the original API does not have
    and that concern the server's tools."""

    extensions: ClassVar[frozenset[str]] = frozenset()
    max_tool_rounds: Rounds | None = None
    agent_permission: Permission | None = None
    code_execution_permission: Permission | None = None

    @property
    def permission(self) -> Permission:
        return self.agent_permission or self.code_execution_permission or "auto"

    @property
    def is_extended(self) -> bool:
        """Whether the request has a field that concerns the server's tools and that the original API does not have."""
        return not self.model_fields_set.isdisjoint(self.extensions | AgentFields.model_fields.keys())


def require_file_tools(
    dialect_request: DialectRequest,
    refusal: type[AgentKernelError] = Unprocessable,
    *,
    hint: str = CODE_HINT,
    details: Mapping[str, Any] | None = OF_FILES,
) -> DialectRequest:
    """Return the request unchanged. Raises ``refusal``, with ``hint`` and ``details``, if the request asks for files
    but has no tools that can produce files."""
    if dialect_request.request.outputs and (
        dialect_request.server_tools == () or dialect_request.request.max_tool_rounds == 0
    ):
        raise refusal(
            "The request asks for files, but has no server tools that could produce them.", hint=hint, details=details
        )
    return dialect_request


# -------------------------------------------------------------------------------------------- constraints on the answer

ReasoningEffort = Annotated[str, Field(pattern=r"^[a-z]{1,20}$")]
Penalty = Annotated[float, Field(ge=-2, le=2)]
MAX_BIASED = 1_024
Bias = Annotated[
    dict[Annotated[int, Field(ge=0, lt=1 << 31)], Annotated[float, Field(ge=-100, le=100)]],
    Field(max_length=MAX_BIASED),
]
Regex = Annotated[str, Field(min_length=1, max_length=10_000)]
Choices = Annotated[list[Annotated[str, Field(max_length=10_000)]], Field(min_length=1, max_length=1_000)]
GrammarText = Annotated[str, Field(min_length=1, max_length=100_000)]


def _an_object(schema: Any) -> Any:
    """Return a schema as an object. vLLM also accepts a schema as JSON text, which is parsed here."""
    if not isinstance(schema, str):
        return schema
    try:
        return json.loads(schema)
    except (ValueError, RecursionError):
        raise ValueError("a schema must be an object, or the JSON of one") from None


Schema = Annotated[JsonSchema, BeforeValidator(_an_object)]


class StructuredOutputs(Words):
    """vLLM's field ``structured_outputs``, which constrains the answer. ``structural_tag`` constrains parts of an
    answer; no engine of this server supports it."""

    json_: Annotated[Schema | None, Field(alias="json")] = None
    regex: Regex | None = None
    choice: Choices | None = None
    grammar: GrammarText | None = None
    json_object: bool | None = None
    structural_tag: Any = None


class Grammar(Words):
    """mistral.rs's field ``grammar``, which constrains the answer. ``type`` states whether ``value`` is a regular
    expression, a JSON schema, or a grammar."""

    type: Literal["regex", "json_schema", "lark", "none"]
    value: str | dict[str, Any] | None = None


class Decoding(Words):
    """Fields of vLLM and mistral.rs that constrain the form of an answer, and OpenAI's penalties. An engine that does
    not support a field refuses the request with status 400 and names the field."""

    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: Bias | None = None
    guided_json: Schema | None = None
    guided_regex: Regex | None = None
    guided_choice: Choices | None = None
    guided_grammar: GrammarText | None = None
    structured_outputs: StructuredOutputs | None = None
    grammar: Grammar | None = None

    @property
    def penalties(self) -> dict[str, Any]:
        """The penalties of the request, under the names that ``Sampling`` gives these fields."""
        bias = tuple((self.logit_bias or {}).items())
        return {
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "logit_bias": bias,
        }

    def form(self, own_format: OutputFormat | None) -> OutputFormat | None:
        """Return the output format that one of these fields requests, or else ``own_format``, the format that the
        dialect's own field requests. Raises ValueError if more than one field requests a format."""
        structured = self.structured_outputs or StructuredOutputs()
        if structured.structural_tag is not None:
            raise ValueError("structured_outputs has a structural_tag, which no engine of this server supports")
        forms = [
            *_forms(self.guided_json, self.guided_regex, self.guided_choice, self.guided_grammar),
            *_forms(structured.json_, structured.regex, structured.choice, structured.grammar),
            *([OutputFormat("json_object")] if structured.json_object else []),
            *_forms_of(self.grammar),
        ]
        if len(forms) + (own_format is not None) > 1:
            raise ValueError(
                "structured_outputs excludes guided_*, grammar and the response format: send only one of them"
            )
        return forms[0] if forms else own_format


def _forms(
    schema: dict[str, Any] | None, regex: str | None, choice: list[str] | None, grammar: str | None
) -> list[OutputFormat]:
    return [
        *([OutputFormat("json_schema", schema)] if schema is not None else []),
        *([OutputFormat("regex", regex=regex)] if regex is not None else []),
        *([OutputFormat("choice", choice=tuple(choice))] if choice is not None else []),
        *([OutputFormat("grammar", grammar=grammar)] if grammar is not None else []),
    ]


def _forms_of(grammar: Grammar | None) -> list[OutputFormat]:
    if grammar is None or grammar.type == "none":
        return []
    value = grammar.value
    if grammar.type == "json_schema":
        schema = _an_object(value)
        if not isinstance(schema, dict):
            raise ValueError("grammar must have a schema, an object, as its value")
        check_schema(schema)
        return _forms(schema, None, None, None)
    if not isinstance(value, str) or not value:
        raise ValueError("grammar must have a string as its value")
    return _forms(None, *((value, None, None) if grammar.type == "regex" else (None, None, value)))
