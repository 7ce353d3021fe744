"""Groups the objects that all turns and commands of one kernel share."""

from __future__ import annotations

from typing import Any, NamedTuple

from agent_kernel.notebook.draft.apply_draft import DraftApplier
from agent_kernel.notebook.draft.draft import Drafts
from agent_kernel.notebook.kernel.input_prompt import Person
from agent_kernel.notebook.kernel.variable_fingerprints import VariableTracker
from agent_kernel.notebook.turn.client_tool_registry import ClientTools
from agent_kernel.notebook.turn.execution_history import ExecutionHistory
from agent_kernel.notebook.turn.session_permissions import Consent
from agent_kernel.notebook.turn.user_functions import UserFunctions


class KernelParts(NamedTuple):
    """The objects that all turns of a kernel share; built once for each kernel. ``person`` asks the user. ``consent``
    has the user's decisions. The model can call the ``tools`` and ``functions`` in this kernel. ``variables`` tracks
    the variables that the model's code used. ``applier`` runs the code of ``drafts`` in the kernel."""

    shell: Any
    person: Person
    consent: Consent
    executions: ExecutionHistory
    functions: UserFunctions
    tools: ClientTools
    variables: VariableTracker
    drafts: Drafts
    applier: DraftApplier
