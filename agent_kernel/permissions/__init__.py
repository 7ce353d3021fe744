"""The permission gate, which every tool call must pass. It decides which calls run, asks a person where the rules
require it, and remembers the answers."""

from agent_kernel.permissions.admin_policy import AdminPolicy
from agent_kernel.permissions.approval_answer import Answer, Verdict
from agent_kernel.permissions.approvals import Approvals
from agent_kernel.permissions.gate import DEFAULTS, Gate, Policy, strictest

__all__ = ["DEFAULTS", "AdminPolicy", "Answer", "Approvals", "Gate", "Policy", "Verdict", "strictest"]
