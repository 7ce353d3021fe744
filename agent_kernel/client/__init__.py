"""Python client of an agent server: one async client over the native routes, and a bridge for synchronous code."""

from agent_kernel.client.approval import Decision
from agent_kernel.client.client import Client, Skill
from agent_kernel.client.file import File
from agent_kernel.client.input_file import InputFile
from agent_kernel.client.result import Call, Result
from agent_kernel.client.session import Branch, Found, Line, Session
from agent_kernel.client.sync_client import SyncClient
from agent_kernel.client.turn import Turn

__all__ = [
    "Branch",
    "Call",
    "Client",
    "Decision",
    "File",
    "Found",
    "InputFile",
    "Line",
    "Result",
    "Session",
    "Skill",
    "SyncClient",
    "Turn",
]
