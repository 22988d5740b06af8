"""Sandboxes with warm Python kernels for AI agents.

    from pandastack import Sandbox

    with Sandbox.create(template="code-interpreter") as sandbox:
        ctx = sandbox.create_code_context()
        ctx.run_code("import pandas as pd; df = pd.DataFrame({'x': [1, 2, 3]})")
        print(ctx.run_code("df.x.sum()").text)

`AsyncSandbox` has the same names for asyncio. The server and the key are found by argument, in the environment
(``PANDASTACK_API`` or ``PANDASTACK_API_URL``, ``PANDASTACK_API_KEY``), in ``~/.config/pandastack/config.json``, and the
server at last at ``http://127.0.0.1:8080``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._functions import MCPServer, OpenAPI, tool
from ._sync.agent import Agent, AgentRun
from ._sync.analyst import Analyst, Answer
from ._sync.client import Client
from ._sync.commands import Commands, Process
from ._sync.context import CodeContext, ExecutionStream
from ._sync.filesystem import Filesystem, Watch
from ._sync.pty import Pty, Terminal
from ._sync.sandbox import Sandbox
from ._version import VERSION as __version__
from .errors import (
    APIConnectionError,
    AuthError,
    BadRequestError,
    CapacityError,
    CommandError,
    ConflictError,
    ExploreError,
    NotFoundError,
    PandastackError,
    RateLimitError,
    SandboxTimeout,
    ServerError,
)
from .events import Event
from .execution import Execution, Result
from .records import (
    AgentEvent,
    AgentInfo,
    Approval,
    Candidate,
    ContextInfo,
    Copied,
    ExecResult,
    Exploration,
    FileEvent,
    FileInfo,
    ImportedSnapshot,
    LifeEvent,
    Lifecycle,
    LimitHits,
    Metrics,
    NetworkEvent,
    NetworkInfo,
    Outcome,
    Port,
    ProcessInfo,
    SandboxInfo,
    SnapshotID,
    SnapshotOrigin,
    TemplateInfo,
    Token,
    ToolCall,
    ToolInfo,
    Usage,
    WriteResult,
)

if TYPE_CHECKING:
    from ._async.agent import AsyncAgent as AsyncAgent
    from ._async.agent import AsyncAgentRun as AsyncAgentRun
    from ._async.analyst import AsyncAnalyst as AsyncAnalyst
    from ._async.analyst import AsyncAnswer as AsyncAnswer
    from ._async.client import AsyncClient as AsyncClient
    from ._async.commands import AsyncCommands as AsyncCommands
    from ._async.commands import AsyncProcess as AsyncProcess
    from ._async.context import AsyncCodeContext as AsyncCodeContext
    from ._async.context import AsyncExecutionStream as AsyncExecutionStream
    from ._async.filesystem import AsyncFilesystem as AsyncFilesystem
    from ._async.filesystem import AsyncWatch as AsyncWatch
    from ._async.pty import AsyncPty as AsyncPty
    from ._async.pty import AsyncTerminal as AsyncTerminal
    from ._async.sandbox import AsyncSandbox as AsyncSandbox

_ASYNC = {
    "AsyncAgent": "agent",
    "AsyncAgentRun": "agent",
    "AsyncAnalyst": "analyst",
    "AsyncAnswer": "analyst",
    "AsyncClient": "client",
    "AsyncCodeContext": "context",
    "AsyncCommands": "commands",
    "AsyncExecutionStream": "context",
    "AsyncFilesystem": "filesystem",
    "AsyncProcess": "commands",
    "AsyncPty": "pty",
    "AsyncSandbox": "sandbox",
    "AsyncTerminal": "pty",
    "AsyncWatch": "filesystem",
}

__all__ = [
    "APIConnectionError",
    "Agent",
    "AgentEvent",
    "AgentInfo",
    "AgentRun",
    "Analyst",
    "Answer",
    "Approval",
    "AsyncAgent",
    "AsyncAgentRun",
    "AsyncAnalyst",
    "AsyncAnswer",
    "AsyncClient",
    "AsyncCodeContext",
    "AsyncCommands",
    "AsyncExecutionStream",
    "AsyncFilesystem",
    "AsyncProcess",
    "AsyncPty",
    "AsyncSandbox",
    "AsyncTerminal",
    "AsyncWatch",
    "AuthError",
    "BadRequestError",
    "CapacityError",
    "Client",
    "CodeContext",
    "CommandError",
    "Commands",
    "ConflictError",
    "Candidate",
    "ContextInfo",
    "Copied",
    "Event",
    "ExecResult",
    "Exploration",
    "ExploreError",
    "Execution",
    "ExecutionStream",
    "FileEvent",
    "FileInfo",
    "Filesystem",
    "ImportedSnapshot",
    "LifeEvent",
    "Lifecycle",
    "LimitHits",
    "MCPServer",
    "Metrics",
    "NetworkEvent",
    "NetworkInfo",
    "OpenAPI",
    "Outcome",
    "Port",
    "NotFoundError",
    "PandastackError",
    "Process",
    "ProcessInfo",
    "Pty",
    "RateLimitError",
    "Result",
    "Sandbox",
    "SandboxInfo",
    "SandboxTimeout",
    "ServerError",
    "SnapshotID",
    "SnapshotOrigin",
    "TemplateInfo",
    "Terminal",
    "Token",
    "ToolCall",
    "ToolInfo",
    "Usage",
    "Watch",
    "WriteResult",
    "__version__",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Loads the asynchronous half, and aiohttp with it, only when somebody asks for it."""
    module = _ASYNC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"._async.{module}", __name__), name)
    globals()[name] = value
    return value
