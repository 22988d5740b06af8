# Generated from ../_async/network.py by tools/generate_sync.py: change that file, then run the tool.
"""What a sandbox may reach, and what it tried."""

from __future__ import annotations

from typing import Any, Iterator, List, Mapping, Optional

from .. import _routes as routes
from ..records import NetworkEvent, NetworkInfo
from .client import Client


class Network:
    """The network of a sandbox: ``sandbox.network``."""

    def __init__(self, client: Client, sandbox_id: str) -> None:
        self._client = client
        self._id = sandbox_id

    def get(self) -> NetworkInfo:
        """Its policy, its secrets without their values, and what it has carried."""
        return NetworkInfo.from_wire((self._client._send(routes.get_network(self._id))).object())

    def set(
        self, policy: Optional[Mapping[str, Any]] = None, *, secrets: Optional[Mapping[str, Any]] = None
    ) -> NetworkInfo:
        """Changes what it may reach, from now on. Connections that would not be allowed any more are cut.

        Args:
            policy: in place of the one before, as `network` of `Sandbox.create`. What is left out stays.
            secrets: in place of all before, as `secrets` of `Sandbox.create`.

        Raises:
            BadRequestError: a rule or a secret that can't be; `field` names it.
        """
        return NetworkInfo.from_wire((self._client._send(routes.set_network(self._id, policy, secrets))).object())

    def log(self, tail: int = 50) -> List[NetworkEvent]:
        """What it tried to reach lately and what became of it, the oldest first; also for a while after it has ended.

        Args:
            tail: so many of the last ones, at most 500.
        """
        answer = self._client._send(routes.network_log(self._id, tail, False))
        return [NetworkEvent.from_wire(body) for body in answer.items("lines")]

    def follow(self, tail: int = 50) -> Iterator[NetworkEvent]:
        """The lines of `log` and those that come. A broken connection is taken up again where it broke."""
        request = routes.network_log(self._id, tail, True)
        for line in self._client._stay_on(request, lambda name, body, number: NetworkEvent.from_wire(body)):
            yield line
