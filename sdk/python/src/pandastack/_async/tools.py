"""The functions outside that a sandbox can call, and the decisions about calls."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from .. import _routes as routes
from .._connector import Connector
from .._functions import Function, Toolset
from ..records import Approval, ToolCall, ToolInfo
from .client import AsyncClient
from .transport import current_loop, settled


class AsyncTools:
    """The tools of a sandbox: ``sandbox.tools``."""

    def __init__(self, client: AsyncClient, sandbox_id: str) -> None:
        self._client = client
        self._id = sandbox_id
        self._functions: Dict[str, Function] = {}
        self._line: Optional[Connector] = None

    async def list(self) -> List[ToolInfo]:
        """What Python in the sandbox can call, by name."""
        answer = await self._client._send(routes.list_tools(self._id))
        return [ToolInfo.from_wire(body) for body in answer.items("tools")]

    async def set(self, tools: Any, *, policy: Optional[Mapping[str, Any]] = None) -> List[ToolInfo]:
        """Gives it other tools, in place of those before, also while it runs. Calls in progress go on as they began.

        Args:
            tools, policy: as `tools` and `tool_policy` of `AsyncSandbox.create`.

        Raises:
            BadRequestError: a tool that can't be; `field` names it.
            AuthError: the key may not have the server call that address.
        """
        given = Toolset(tools, policy)
        answer = await self._client._send(routes.put_tools(self._id, given.wire))
        await self._connect(given.functions)
        return [ToolInfo.from_wire(body) for body in answer.items("tools")]

    async def calls(self, limit: int = 100) -> List[ToolCall]:
        """The last calls, the newest last; without their arguments and results.

        Args:
            limit: so many, at most 1000.
        """
        answer = await self._client._send(routes.tool_calls(self._id, limit))
        return [ToolCall.from_wire(body) for body in answer.items("calls")]

    async def approvals(self, status: Optional[str] = "pending") -> List[Approval]:
        """Its calls that wait for a decision, the oldest first. `client.approvals` decides.

        Args:
            status: "pending", "approved", "denied", "expired", "cancelled"; None for all.
        """
        answer = await self._client._send(routes.list_approvals(self._id, None, status))
        return [Approval.from_wire(body) for body in answer.items("approvals")]

    def close(self) -> None:
        """Takes this program's functions away; calls of them fail from then on."""
        if self._line is not None:
            self._line.close()
            self._line = None

    async def _connect(self, functions: Mapping[str, Function]) -> None:
        """Has calls of functions come here, from now on."""
        self.close()
        self._functions = dict(functions)
        if not self._functions:
            return
        endpoint = self._client._endpoint
        self._line = Connector(endpoint, routes.connect_tools(self._id), self._functions, current_loop())
        await settled(self._line.ready)


class AsyncApprovals:
    """Calls of tools that wait for somebody's decision: ``client.approvals``."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def list(
        self, *, sandbox_id: Optional[str] = None, agent_id: Optional[str] = None, status: Optional[str] = "pending"
    ) -> List[Approval]:
        """Those of the workspace, the oldest first.

        Args:
            sandbox_id, agent_id: only those of this sandbox, or of this agent's run.
            status: "pending", "approved", "denied", "expired", "cancelled"; None for all.
        """
        answer = await self._client._send(routes.list_approvals(sandbox_id, agent_id, status))
        return [Approval.from_wire(body) for body in answer.items("approvals")]

    async def get(self, id: str) -> Approval:
        """One of them.

        Raises:
            NotFoundError: there is none.
        """
        return Approval.from_wire((await self._client._send(routes.get_approval(id))).object())

    async def decide(self, id: str, approve: bool, reason: str = "") -> Approval:
        """Lets a call that waits go on, or denies it.

        Args:
            reason: told to the program that called.

        Raises:
            ConflictError: it was decided before; the message says how.
            NotFoundError: there is none.
        """
        return Approval.from_wire((await self._client._send(routes.decide_approval(id, approve, reason))).object())
