"""Builds the request body of a turn from a cell's options, its prompt and the state of this kernel."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agent_kernel.core.messages import DRAFT_VARIABLES
from agent_kernel.notebook.display.render import line_bundle
from agent_kernel.notebook.kernel.one_line_errors import AgentError
from agent_kernel.notebook.kernel.variable_summary import (
    NAMED,
    describe_data,
    named_in_braces,
    tables_mentioned,
    without_braces,
)
from agent_kernel.notebook.kernel.variable_transfer import CopiedVariables, copy_variables
from agent_kernel.notebook.turn.answer_format import FORMS
from agent_kernel.notebook.turn.cell_options import CellOptions
from agent_kernel.notebook.turn.execution_target import ExecutionTarget
from agent_kernel.notebook.turn.file_previews import describe_files
from agent_kernel.notebook.turn.kernel_parts import KernelParts
from agent_kernel.notebook.turn.result_assignment import ResultAssignment
from agent_kernel.notebook.turn.run_all_detector import RunAllDetector
from agent_kernel.notebook.turn.session_permissions import LIVE

Note = dict[str, str]
MAX_EARLIER = 2_000
"""Maximum number of characters of earlier prompts that are searched for names of data."""
NOT_IN_BACKGROUND = (
    "a background turn runs Python in the sandbox, on copies of the variables you name. "
    "Leave out --in {where}, or --background."
)
MAX_BYTES = 20 * 2**20
"""Limit in bytes for all images of a turn together. The server has the same limit."""
MAX_PICTURES = 16
BEGINNINGS = (
    ("image/png", 0, b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", 0, b"\xff\xd8\xff"),
    ("image/gif", 0, b"GIF8"),
    ("image/webp", 8, b"WEBP"),
    ("image/bmp", 0, b"BM"),
    ("image/tiff", 0, b"II*\x00"),
    ("image/tiff", 0, b"MM\x00*"),
    ("video/mp4", 4, b"ftyp"),
    ("video/webm", 0, b"\x1aE\xdf\xa3"),
    ("video/x-msvideo", 8, b"AVI "),
)
"""(MIME type, offset, magic bytes) of each supported format. File names are not trusted."""


class RequestBuilder:
    """Builds the bodies of turns. ``find_session_id`` returns the id of this notebook's session, or "" if it has none
    yet."""

    def __init__(self, parts: KernelParts, find_session_id: Callable[[], str]) -> None:
        self._parts = parts
        self._shell = parts.shell
        self._consent = parts.consent
        self._find_session_id = find_session_id
        self._earlier = ("", "")
        self.run_all = RunAllDetector(parts.shell)
        self.target = ExecutionTarget(parts.shell, parts.drafts)

    def body(
        self,
        request: CellOptions,
        prompt: str,
        cell: str,
        session: str,
        notes: Sequence[Note],
        *,
        result: ResultAssignment | None = None,
    ) -> dict[str, Any]:
        """Return the body of the request that starts a turn. ``notes`` are further notes for the model. ``result`` is
        the variable that gets the result of the turn. Raises AgentError for an unknown variable or an unreadable
        picture."""
        variables = named_in_braces(prompt, self._shell.user_ns)
        place = self._target(request, session)
        copies = self._copies(request, prompt, variables, place)
        form = result.format(request.form) if result else FORMS[request.form]
        if result:
            result.check_place(place)
        files = _files(without_braces(prompt, variables), place)
        # The newest tables are not described for a sandbox, which does not have them, and for a turn whose notes or
        # files already state its subject.
        newest = not (notes or files or place == "sandbox")
        names = [*request.variables, *variables]
        data = self._describe_data(prompt, session, names, place, has_files=bool(files), newest=newest)
        context = [*notes, *_with_lines(data, copies), *files, *form.notes]
        # The stored answer does not contain the value of a program, so a typed result is always asked for again.
        may_show_stored = not (request.fresh or (result and result.type)) and self.run_all.is_sent_with_others()
        body: dict[str, Any] = {
            "prompt": without_braces(prompt, variables),
            "context": context,
            "cell": cell,
            "rerun": "show" if may_show_stored else "ask",
            "alive": self._parts.variables.intact() if may_show_stored else [],
            "answers": self._answers(request, session),
            **self._runs(request),
            "remembered": request.permission != "ask",
            "denied": sorted(self._consent.list_refused(session or self._find_session_id())) if self._consent else [],
            "sampling": request.sampling,
            **form.fields,
        }
        optional = {"session": session, "where": place, "given": copies.variables, "output": dict(form.output)}
        optional |= self._chosen_fields(request)
        body |= {name: value for name, value in optional.items() if value}
        rounds = form.rounds if request.rounds is None else request.rounds
        return body if rounds is None else {**body, "max_tool_rounds": rounds}

    def _chosen_fields(self, request: CellOptions) -> dict[str, Any]:
        """Return the fields for options of the cell. Fields without a value are not sent."""
        return {
            "permission": request.permission,
            "model": request.model,
            "effort": request.effort,
            "media": read_images(request.images, self._shell.user_ns),
            "skills": list(request.skills),
            "page": request.page,
            "ran": self._parts.executions.cells if request.page else [],
        }

    def build_tool_fields(self) -> dict[str, Any]:
        """Return the fields of a turn's body that determine which tools it has."""
        place = self.target.of("", live_is_allowed=self._is_allowed(""))
        return {**self._runs(CellOptions()), **({"where": place} if place else {})}

    def explain_repetition(self, reason: str, turn: str) -> str:
        """Return a line that tells the user why the cell is asked again although the turn ``turn`` has a stored answer.
        The reasons come from the server; for changed variables, this names the variables."""
        if reason != "variables":
            return f"Asked again: {reason}."
        changed = self._parts.variables.find_changed(turn)
        if not changed:
            return "Asked again: the kernel no longer has the variables of that time."
        names = ", ".join(changed[:5]) + (" and others" if len(changed) > 5 else "")
        return f"Asked again: {names} {'is' if len(changed) == 1 else 'are'} not what the code of its answer used."

    def list_allowed_kinds(self, request: CellOptions) -> frozenset[str]:
        """Return the kinds of calls approved for this turn only."""
        if request.permission == "ask":
            return frozenset()
        return frozenset(request.allows) | (frozenset({LIVE}) if request.where == "live" else frozenset())

    def _target(self, request: CellOptions, session: str) -> str:
        if request.background:
            if request.where in ("live", "draft") or LIVE in request.allows:
                raise AgentError(NOT_IN_BACKGROUND.format(where=request.where or "live (--auto)"))
            return "sandbox"
        self._parts.drafts.begin()
        choice = request.where or ("live" if LIVE in request.allows else "")
        return self.target.of(choice, live_is_allowed=self._is_allowed(session))

    def _runs(self, request: CellOptions) -> dict[str, Any]:
        """Return the tools and functions that this kernel offers. A background turn gets none, because its cell ends
        before the turn."""
        if request.background:
            return {"client_tools": [], "functions": []}
        return {"client_tools": self._parts.tools.declare(), "functions": self._parts.functions.to_json()}

    def _copies(self, request: CellOptions, prompt: str, names: list[str], place: str) -> CopiedVariables:
        """Return copies of the variables that the options or the prompt name, for a turn whose Python runs in the
        sandbox; no copies for any other turn. If the turn runs in the background, or if the cell asks for a draft but
        runs in the sandbox, the tables that the prompt mentions are copied too. Raises AgentError if an option names an
        unknown variable."""
        namespace = self._shell.user_ns
        for name in request.variables:
            if name not in namespace:
                raise AgentError(f"there is no variable {name!r} in this kernel.")
        if place != "sandbox":
            return CopiedVariables()
        tables = tables_mentioned(prompt, namespace) if request.where == "draft" or request.background else []
        copies = copy_variables(dict.fromkeys([*request.variables, *names, *tables]), namespace)
        for name, reason in copies.left_out.items():
            text = f"{name} is not in the sandbox; the model gets only its description: {reason}."
            self._shell.display_pub.publish(line_bundle(text))
        return copies

    def _describe_data(
        self, prompt: str, session: str, names: Sequence[str], place: str, *, has_files: bool, newest: bool
    ) -> list[Note]:
        """Describe the data that the prompt is about (see ``describe_data``). The description comes from the kernel or,
        if the turn continues in a draft whose code has changed the data, from the draft. In the second case the
        description of the kernel is added if the prompt names its data, because the server compares it with the note of
        a stored turn."""
        before, earlier = self._earlier
        earlier = earlier if before == session and not has_files else ""
        options: dict[str, Any] = {"named": [*names], "earlier": earlier, "newest": newest}
        kernel_note = _note("\n".join(describe_data(prompt, self._shell.user_ns, **options)))
        drafted = _note(self._parts.drafts.describe_data(prompt, options) if place == "draft" else "")
        data = drafted or kernel_note
        is_named = has_files or data.get("title") == NAMED
        self._earlier = (session, f"{earlier}\n{prompt}"[-MAX_EARLIER:] if earlier and not is_named else prompt)
        if data in ({}, kernel_note):
            return [data] if data else []
        draft_note = {"title": DRAFT_VARIABLES, "text": f"{data['title']}: {data['text']}"}
        return [kernel_note, draft_note] if kernel_note.get("title") == NAMED else [draft_note]

    def _is_allowed(self, session: str) -> bool:
        """Return whether the user lets code of this session run in the kernel without asking."""
        return bool(self._consent) and self._consent.allows(session or self._find_session_id())

    def _answers(self, request: CellOptions, session: str) -> list[str]:
        """Return the kinds of approvals that this turn can answer: all if a user is present, else those allowed in
        advance."""
        if self._parts.person.is_there:
            return ["*"]
        if request.permission == "ask":
            return []
        kinds: set[str] = set(self.list_allowed_kinds(request))
        if self._consent:
            kinds |= self._consent.kinds(session or self._find_session_id())
        return sorted(kinds)


def _note(text: str) -> Note:
    """Return the note whose title is the first line of ``text``; an empty note if there are no other lines."""
    title, _, facts = text.partition("\n")
    return {"title": title, "text": facts} if facts else {}


def _with_lines(data: list[Note], copies: CopiedVariables) -> list[Note]:
    """Add the reasons why variables are not in the sandbox to the note about them."""
    lines = [f"{name} is not in the sandbox: {reason}." for name, reason in copies.left_out.items()]
    return [{**data[0], "text": "\n".join([data[0]["text"], *lines])}, *data[1:]] if data and lines else data


def _files(prompt: str, place: str) -> list[Note]:
    """Describe the files that the prompt names. Return an empty list if Python runs in the sandbox, which has a working
    directory of its own."""
    facts = describe_files(prompt) if place != "sandbox" else ""
    return [{"title": "Files", "text": facts}] if facts else []


# Reads the images and videos of the option ``--image``: files, bytes, or variables with a picture. Their content is
# not decoded.


def read_images(names: Iterable[str], namespace: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return ``{mime, data}`` entries for the body of a turn, with data in base64. Raises AgentError for content that
    is not a supported format, and for more than MAX_BYTES bytes in all."""
    media: list[dict[str, str]] = []
    total = 0
    for name in names:
        data = _bytes(name, namespace)
        total += len(data)
        if total > MAX_BYTES or len(media) == MAX_PICTURES:
            raise AgentError(
                f"a turn can have at most {MAX_PICTURES} pictures, with at most {MAX_BYTES >> 20} MiB in all."
            )
        media.append({"mime": _kind(name, data), "data": base64.b64encode(data).decode()})
    return media


def _bytes(name: str, namespace: Mapping[str, Any]) -> bytes:
    """Read the bytes of a variable or file. A variable takes precedence over a file of the same name."""
    value = namespace.get(name, name)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, str | Path):
        return _read(Path(value).expanduser())
    save = getattr(value, "savefig", None) or getattr(value, "save", None)
    module = type(value).__module__.partition(".")[0]
    if save is None or module not in ("PIL", "matplotlib"):
        raise AgentError(
            f"--image {name}: a {type(value).__name__} is not a picture; give a PIL image, a figure or bytes."
        )
    out = io.BytesIO()
    save(out, format="png")
    return out.getvalue()


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise AgentError(f"--image {path}: the file can have at most {MAX_BYTES >> 20} MiB.")
        return path.read_bytes()
    except OSError as error:
        raise AgentError(f"--image {path}: {error.strerror or error}, and there is no variable of that name.") from None


def _kind(name: str, data: bytes) -> str:
    for mime, at, beginning in BEGINNINGS:
        if data[at : at + len(beginning)] == beginning:
            return mime
    raise AgentError(f"--image {name}: this is not a PNG, JPEG, GIF, WebP, BMP or TIFF image nor an MP4 or WebM video.")
