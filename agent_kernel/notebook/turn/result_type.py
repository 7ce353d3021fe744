"""Resolves the type in ``%%agent -> name: type`` without evaluating code, and provides it as a JSON schema and as a
check of a value.

A type is made of names that are already in the kernel, dots, brackets and ``|``. Calls, literals outside ``Literal``,
and attributes of objects that are neither modules nor classes are errors.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import json
import keyword
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.kernel.program_value import ProgramValue
from agent_kernel.sandbox.worker.variable_transfer import name_of_type

PLAIN: Mapping[str, type] = {kind.__name__: kind for kind in (int, float, str, bool, list, dict)}
SCHEMAS: Mapping[Any, Mapping[str, Any]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    str: {"type": "string"},
    bool: {"type": "boolean"},
    list: {"type": "array"},
    dict: {"type": "object"},
    type(None): {"type": "null"},
}
TABLES = ("DataFrame", "Series")
"""Names that need no import: classes of pandas or polars, whichever the kernel has loaded."""
TABLE_PACKAGES = ("pandas", "polars", "numpy", "pyarrow", "geopandas")
RESERVED = re.compile(r"__.*|In|Out|get_ipython|exit|quit|_(?:i{1,3}|ih|oh|dh|exit_code)?|_i?\d+")
"""Names of Python and IPython that are never set."""
MAX_TYPE = 500
EXAMPLES = "int, float, str, bool, list, list[str], dict, DataFrame, or a pydantic model or dataclass of this kernel"


class ResultType(NamedTuple):
    """A resolved type. ``text`` is the type as the user wrote it. ``schema`` is the JSON schema that constrains the
    answer, or None for a type whose values only a program can make, such as a table. With ``wrapped``, the answer is a
    JSON object that has the value under the key ``value``. ``read`` converts a value from JSON and raises ValueError if
    it does not have the type."""

    text: str
    kind: Any
    schema: Mapping[str, Any] | None = None
    wrapped: bool = False
    read: Callable[[Any], Any] | None = None

    @property
    def output(self) -> Mapping[str, Any]:
        """Return the output format of the turn, or {} if the answer stays free text."""
        return {"kind": "json_schema", "json_schema": self.schema, "name": "value"} if self.schema is not None else {}

    def read_answer(self, text: str) -> Any:
        """Convert the text of an answer to this type. Raises ValueError if the text does not fit the type."""
        if self.read is None:
            raise ValueError("an answer in text cannot contain a value of this type; a program must compute it")
        try:
            value = json.loads(text)
        except RecursionError as error:
            raise ValueError("the JSON of the answer nests too deeply") from error
        if self.wrapped and isinstance(value, dict):
            if "value" not in value:
                raise ValueError("the answer has no key named value")
            value = value["value"]
        return self.read(value)

    def convert_value(self, value: Any) -> Any:
        """Return the value of a program as a value of this type. Raises ValueError if the value does not fit
        the type."""
        return _fit(_unbox(value, self.kind), self.kind)

    def may_be(self, program_value: ProgramValue) -> bool:
        """Return whether ``program_value``, which exists only in a draft, can have this type. Only the name of its
        type is compared, because the value itself is in another process."""
        kind = typing.get_origin(self.kind) or self.kind
        return (
            bool(program_value.elsewhere) and isinstance(kind, type) and name_of_type(kind) == program_value.elsewhere
        )


def check_name(name: str) -> None:
    """Raise AgentError if the user's variable ``name`` cannot be set to an answer."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise AgentError(f"{name!r} is not the name of a variable: %%agent -> NAME: TYPE")
    if RESERVED.fullmatch(name):
        raise AgentError(f"{name} cannot be set: it is a name of Python or IPython. Choose another one.")


def resolve_type(text: str, namespace: Mapping[str, Any]) -> ResultType:
    """Return the type that ``text`` names, looked up in ``namespace``. Names, dots, brackets and ``|`` are allowed;
    nothing is evaluated. Raises AgentError if the text names no type."""
    try:
        kind = _resolve(ast.parse(text.strip(), mode="eval").body, namespace) if len(text) <= MAX_TYPE else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        kind = None
    if kind is None:
        raise AgentError(f"{_cut(text)} is not a type. Use {EXAMPLES}.")
    if _is_plain(kind):
        return ResultType(text, kind, *_wrap(_schema(kind)), read=lambda value: _fit(value, kind))
    if isinstance(kind, type) and kind.__module__.partition(".")[0] in TABLE_PACKAGES:
        return ResultType(text, kind)
    return _pydantic_type(text, kind)


def _resolve(node: ast.expr, namespace: Mapping[str, Any]) -> Any:
    """Return the type that an expression such as ``list[str]`` names. Raises ValueError if it names none."""
    match node:
        case ast.Constant(value=None):
            return type(None)
        case ast.Name(id=name):
            return _find_type(name, namespace)
        case ast.Attribute():
            return _require_class(_attribute(node, namespace))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return typing.Union[_resolve(left, namespace), _resolve(right, namespace)]  # noqa: UP007  of two values
        case ast.Subscript(value=value, slice=inner):
            return _resolve_subscript(value, inner, namespace)
    raise ValueError("the expression is not a type")


def _find_type(name: str, namespace: Mapping[str, Any]) -> Any:
    if name in PLAIN:
        return PLAIN[name]
    if name in namespace:
        return _require_class(namespace[name])
    if name in TABLES:
        for package in ("pandas", "polars"):
            if found := getattr(sys.modules.get(package), name, None):
                return _require_class(found)
        raise AgentError(f"{name} needs pandas or polars, and this kernel has imported neither.")
    raise ValueError("not a name")


def _attribute(node: ast.expr, namespace: Mapping[str, Any]) -> Any:
    """Look a dotted name up in modules and classes. Their ``__dict__`` is read, so that no code of a lazy module or of
    a descriptor runs."""
    if isinstance(node, ast.Name):
        if node.id in namespace:
            return namespace[node.id]
        raise ValueError("not a name")
    if not isinstance(node, ast.Attribute):
        raise ValueError("the expression is not a dotted name")
    owner = _attribute(node.value, namespace)
    for members in _members(owner):
        if node.attr in members:
            return members[node.attr]
    raise ValueError("the module or class has no such attribute")


def _members(owner: Any) -> list[Mapping[str, Any]]:
    if _is_class(owner):
        return [type.__getattribute__(base, "__dict__") for base in type.mro(owner)]
    if issubclass(type(owner), types.ModuleType):
        return [object.__getattribute__(owner, "__dict__")]
    raise ValueError("the object before the dot is not a module or class")


def _resolve_subscript(value: ast.expr, inner: ast.expr, namespace: Mapping[str, Any]) -> Any:
    name = value.id if isinstance(value, ast.Name) else value.attr if isinstance(value, ast.Attribute) else ""
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name == "Literal":
        choices = [part.value for part in parts if isinstance(part, ast.Constant)]
        if len(choices) == len(parts) and all(type(choice) in (str, int, bool) for choice in choices):
            return typing.Literal[tuple(choices)]
        raise ValueError("an argument of Literal is not a constant")
    kinds = [_resolve(part, namespace) for part in parts]
    if name in ("list", "List") and len(kinds) == 1:
        return list[kinds[0]]  # type: ignore[valid-type]  # a value, not an annotation
    if name in ("dict", "Dict") and len(kinds) == 2 and kinds[0] is str:
        return dict[str, kinds[1]]  # type: ignore[valid-type]
    if name == "Optional" and len(kinds) == 1:
        return typing.Optional[kinds[0]]  # noqa: UP045  of a value
    raise ValueError("not a container")


def _require_class(candidate: Any) -> Any:
    if _is_class(candidate):
        return candidate
    raise ValueError("the name does not refer to a class")


def _is_class(candidate: Any) -> bool:
    """Return True for a class. Does not use ``isinstance``, which would call the object's own ``__class__``."""
    return issubclass(type(candidate), type)


def _is_plain(kind: Any) -> bool:
    """Return whether the type consists of PLAIN, None, Literal and unions, which need no library."""
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return True
    if origin is None:
        return kind in SCHEMAS
    return all(_is_plain(part) for part in typing.get_args(kind))


def _schema(kind: Any) -> Mapping[str, Any]:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return {"enum": list(parts)}
    if origin is list:
        return {"type": "array", "items": _schema(parts[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(parts[1])}
    if origin is not None:
        return {"anyOf": [_schema(part) for part in parts]}
    return SCHEMAS[kind]


def _wrap(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """Return (schema, False) for a schema whose values are objects. For any other schema, return (schema of an object
    whose ``value`` is such a value, True), because models and servers expect an object."""
    if schema.get("type") == "object" and "properties" in schema:
        return schema, False
    inner = {key: part for key, part in schema.items() if key != "$defs"}
    outer = {"type": "object", "properties": {"value": inner}, "required": ["value"], "additionalProperties": False}
    return outer | ({"$defs": schema["$defs"]} if "$defs" in schema else {}), True


def _pydantic_type(text: str, kind: Any) -> ResultType:
    """Return the result type for classes that the user has defined: pydantic models, dataclasses, enumerations, typed
    dicts."""
    if not _has_fields(kind):
        raise AgentError(f"{_cut(text)} is not a type that an answer can have. Use {EXAMPLES}.")
    try:
        import pydantic
    except ImportError:
        raise AgentError(f"{_cut(text)} needs pydantic in this kernel: pip install pydantic") from None
    try:
        adapter = pydantic.TypeAdapter(kind)
        schema, is_wrapped = _wrap(adapter.json_schema())
    except Exception as error:  # noqa: BLE001  a class of the user takes part and may raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise AgentError(f"{_cut(text)} is not a type that an answer can have: {_cut(reason)}") from None
    return ResultType(text, kind, schema, is_wrapped, lambda value: adapter.validate_json(json.dumps(value)))


def _has_fields(kind: Any) -> bool:
    """Return whether each class in the type declares its fields: models, dataclasses, typed dicts and enumerations."""
    if typing.get_origin(kind) is not None:
        return typing.get_origin(kind) is typing.Literal or all(map(_has_fields, typing.get_args(kind)))
    if kind in SCHEMAS or not _is_class(kind):
        return kind in SCHEMAS
    is_model = any(base.__module__.partition(".")[0] == "pydantic" for base in type.mro(kind))
    return is_model or dataclasses.is_dataclass(kind) or typing.is_typeddict(kind) or issubclass(kind, enum.Enum)


def _unbox(value: Any, kind: Any) -> Any:
    """Convert values of table libraries to ``kind``: numpy scalars to Python's, arrays and series to a list, a series
    to a dict or a table. Return any other value unchanged."""
    origin = typing.get_origin(kind) or kind
    root, name = type(value).__module__.partition(".")[0], type(value).__name__
    if root == "numpy" and getattr(value, "ndim", None) == 0:
        return value.item()
    if origin is list and (isinstance(value, tuple) or (root in TABLE_PACKAGES and name in ("ndarray", "Series"))):
        return list(value) if isinstance(value, tuple) else value.tolist()
    if origin is list and root == "pandas" and name.endswith("Index"):
        return value.tolist()
    if origin is dict and root == "pandas" and name == "Series":
        return value.to_dict()
    if root == "pandas" and name == "Series" and _is_class(kind) and kind.__name__ == "DataFrame":
        return value.to_frame()
    return value


def _fit(value: Any, kind: Any) -> Any:
    """Return the value if it has the type. A whole number fits int and float alike and is converted. Raises ValueError
    if the value has another type."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        fits = any(type(value) is type(part) and value == part for part in parts)
    elif origin is list:
        value = [_fit(_unbox(item, parts[0]), parts[0]) for item in _instance(value, list)]
        fits = True
    elif origin is dict:
        value = {_fit(key, str): _fit(_unbox(item, parts[1]), parts[1]) for key, item in _instance(value, dict).items()}
        fits = True
    elif origin is not None:
        return _fit_any(value, parts)
    elif kind is float and type(value) is int:
        return float(value)
    elif kind is int and type(value) is float and value.is_integer():
        return int(value)
    else:
        fits = type(value) is kind if kind in (int, float, str, bool) else isinstance(value, kind)
    if not fits:
        raise ValueError("the value has another type")
    return value


def _instance(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"the value is not of the type {kind.__name__}")
    return value


def _fit_any(value: Any, kinds: tuple[Any, ...]) -> Any:
    for kind in kinds:
        try:
            return _fit(_unbox(value, kind), kind)
        except ValueError:
            continue
    raise ValueError("the value has none of the types in the union")


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 80 else f"{flat[:77]}..."
