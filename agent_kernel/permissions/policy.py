"""Determines the permission of a call: auto, ask or deny. It is the strictest permission among the defaults, the
server's settings, the administrator's policy and the request. The module does no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from agent_kernel.core.protocols import ToolSpec
from agent_kernel.core.settings import Permission
from agent_kernel.permissions.admin_policy import NO_ADMIN_POLICY, AdminPolicy

STRICTNESS: tuple[Permission, ...] = ("auto", "ask", "deny")

DEFAULTS: Mapping[str, Permission] = MappingProxyType(
    {
        "python.sandbox": "auto",
        "python.draft": "auto",
        "shell": "auto",
        "files.read": "auto",
        "files.write": "auto",
        "skills": "auto",
        "sessions.read": "auto",
        "notebook.read": "auto",
        "python.live": "ask",
        "notebook.edit": "ask",
        "notebook.run": "ask",
        "mcp": "ask",
        "dispatch": "ask",
        "function": "auto",
        "function.effects": "ask",
        "web": "ask",
        "path": "ask",
    }
)
"""The default permission by kind of call; for a kind that is not listed it is ``ask``. ``files.write`` and ``skills``
are allowed because they write only in the work directory."""
EDIT = "notebook.edit"
LIVE = frozenset({"python.live", EDIT, "notebook.run"})
"""Kinds of calls that act on the user's own kernel and notebook."""
FOREIGN = frozenset({"web", "mcp", "dispatch"})
"""Kinds of calls whose results are text from strangers. A LIVE call after one of them may do what that text says and
not what the user wants, so a person is asked again."""


def strictest(*permissions: Permission) -> Permission:
    return max(permissions, key=STRICTNESS.index)


@dataclass(frozen=True, slots=True)
class Ruling:
    """A permission, and a description of the setting from which it comes (``because``). If ``firm`` is true, a person
    is asked about every call, whatever was granted before."""

    permission: Permission
    because: str
    firm: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy of a server.

    ``server`` is the setting ``permission``. ``own`` is the setting ``policy``, which overrides the defaults by kind of
    call or name of a tool. These settings can be stricter than the administrator's policy ``admin``, but not less
    strict.
    """

    server: Permission = "auto"
    own: Mapping[str, Permission] = field(default_factory=lambda: MappingProxyType({}))
    admin: AdminPolicy = NO_ADMIN_POLICY

    def ruling(self, spec: ToolSpec, request: Permission = "auto") -> Ruling:
        voices = [*self._base(spec), *self.admin.rulings(spec.kind, spec.name)]
        voices += [(self.server, "the setting permission"), (request, "this request")]
        permission, because = max(voices, key=lambda voice: STRICTNESS.index(voice[0]))
        firm = any(effect == "ask" for effect, _ in self.admin.rulings(spec.kind, spec.name))
        return Ruling(permission, because, firm)

    def table(self) -> Iterator[tuple[str, Ruling]]:
        """Yield (name, ruling) for every kind of call, and for every name in the settings or in the administrator's
        policy."""
        for name in sorted({*DEFAULTS, *self.own, *self.admin.policy}):
            yield name, self.ruling(ToolSpec(name, "", {}, kind=name))

    def _base(self, spec: ToolSpec) -> list[tuple[Permission, str]]:
        """Return the permission that the settings or the defaults give a tool, and where it comes from. The tool's name
        decides, or if there is no rule for the name, the tool's kind. For a client's own tool both rules are returned,
        because the name that a client gives a tool must not make a rule less strict."""
        kind = self._kind_permission(spec.kind)
        if spec.name in DEFAULTS or spec.name not in self.own:
            return [kind]
        named = (self.own[spec.name], f"the setting policy for {spec.name}")
        return [kind, named] if spec.source == "external" else [named]

    def _kind_permission(self, kind: str) -> tuple[Permission, str]:
        if kind in self.own:
            return self.own[kind], f"the setting policy for {kind}"
        return DEFAULTS.get(kind, "ask"), "the defaults"


def to_json(ruling: Ruling) -> dict[str, Any]:
    return {"permission": ruling.permission, "because": ruling.because, "firm": ruling.firm}
