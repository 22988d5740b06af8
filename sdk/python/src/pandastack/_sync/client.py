# Generated from ../_async/client.py by tools/generate_sync.py: change that file, then run the tool.
"""The client: one server, one key, kept connections, and what to do when the connection breaks."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, Callable, Dict, List, Mapping, Optional, Union

from .. import _checks as check
from .. import _routes as routes
from .._config import find_endpoint
from .._request import Request, Response, Upload
from .._retry import FIRST_CALL_SECONDS, GIVE_UP_SECONDS, Backoff, Throttle
from ..errors import APIConnectionError, CapacityError, NotFoundError, PandastackError, ServerError
from ..events import Event, EventDecoder
from ..records import ImportedSnapshot, LifeEvent, SandboxInfo, SnapshotID, TemplateInfo, Token
from .transport import StreamResponse, Transport, shared, sleep, write_piece

if TYPE_CHECKING:
    from .tools import Approvals


class Client:
    """A connection to a PandaStack server.

    A sandbox made through `Sandbox.create` finds its client by itself; make one to talk to several servers, or for
    what belongs to none of the sandboxes: `templates`, `tokens`, `me`.

    Args:
        api_url: the server. Default: ``PANDASTACK_API`` or ``PANDASTACK_API_URL``, then the configuration file
            (``~/.config/pandastack/config.json``), then ``http://127.0.0.1:8080``. ``/v1`` is added when missing.
        api_key: the key. Default: ``PANDASTACK_API_KEY``, then the configuration file.
        reconnect_seconds: how long calls keep trying while a server that had answered before can't be reached,
            for instance because it restarts.
        headers: more of them for every request, as a proxy before the server asks for. They can't replace what the SDK
            sends itself.

    Raises:
        ValueError: the URL is none, or a header can't be sent.
    """

    def __init__(
        self,
        api_url: Optional[str] = None,
        api_key: Optional[str] = None,
        *,
        reconnect_seconds: float = GIVE_UP_SECONDS,
        headers: Optional[Mapping[str, str]] = None,
    ) -> None:
        self._endpoint = replace(find_endpoint(api_url, api_key), extra=check.headers("headers", headers))
        self._transport = Transport(self._endpoint)
        self._reconnect_seconds = reconnect_seconds
        self._reached = False  # the server was there once: a refused connection may be a restart
        self.sandboxes = Sandboxes(self)
        self.templates = Templates(self)
        self.tokens = Tokens(self)
        self.snapshots = Snapshots(self)
        self.secrets = Secrets(self)
        self.approvals = _approvals(self)

    @property
    def api_url(self) -> str:
        """The server's address, with ``/v1``."""
        return self._endpoint.url

    def me(self) -> Dict[str, Any]:
        """Who the key belongs to, as the server says it.

        Raises:
            AuthError: the key is missing or wrong.
        """
        return (self._send(routes.me())).object()

    def version(self) -> Dict[str, Any]:
        """The server's ``version``, ``commit``, ``go`` and ``driver``. Needs no key."""
        return (self._send(routes.version())).object()

    def close(self) -> None:
        """Closes the connections. Sandboxes live on."""
        self._transport.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.api_url!r})"

    def _send(self, request: Request) -> Response:
        """The answer to a request; a status of 400 or more raises.

        A request that can't have reached the server, or may be repeated, is sent again for a while; so is one that
        came too soon after others.
        """
        backoff, throttle = self._backoff(), Throttle(request)
        while True:
            try:
                response = self._transport.send(request)
            except APIConnectionError as error:
                self._wait(backoff, error, again=request.repeatable)
                continue
            self._reached = True
            if response.status < 400:
                return response
            self._hold(throttle, response.error(request))

    @contextmanager
    def _stream(self, request: Request) -> Iterator[StreamResponse]:
        """The answer to a request as it comes; a status of 400 or more raises."""
        throttle = Throttle(request)
        while True:
            with self._transport.stream(request) as answer:
                self._reached = True
                if answer.status < 400:
                    yield answer
                    return
                error = Response(answer.status, answer.headers, answer.read()).error(request)
            self._hold(throttle, error)

    def _events(self, request: Request, until: Optional[float] = None) -> Iterator[Event]:
        """The events of one connection. With `until` (monotonic), raises _Renew when it has waited too long to keep it."""
        since = time.monotonic()
        with self._stream(request) as answer:
            decoder = EventDecoder()
            for piece in answer.pieces():
                for event in _decode(decoder, piece):
                    yield event
                now = time.monotonic()
                if until is not None and now - since > 1 and until - now < request.read_seconds:
                    raise _Renew  # the next connection is silent no longer than is left

    def _follow(
        self,
        first: Request,
        again: Callable[[int], Request],
        *,
        after: int = 0,
        broken: Optional[APIConnectionError] = None,
        until: Optional[float] = None,
    ) -> Iterator[Event]:
        """Events without a gap over broken connections: `first` opens the stream, ``again(seq)`` goes on behind it.

        With `broken`, the first connection has failed already. Ends after the last event, or when `until` has come.
        """
        backoff = self._backoff()
        seen, request = after, first
        if broken is not None:
            self._wait(backoff, broken)
            request = again(seen)
        while True:
            try:
                if until is not None:
                    left = until - time.monotonic()
                    if left <= 0:
                        return
                    request.read_seconds = min(request.read_seconds, left)
                for event in self._events(request, until):
                    if event.seq and event.seq <= seen:
                        continue
                    seen = event.seq or seen
                    backoff.reset()
                    yield event
                    if event.is_last:
                        return
                lost: PandastackError = APIConnectionError("the stream ended before its last event")
            except _Renew:
                request = again(seen)
                continue
            except APIConnectionError as error:
                if until is not None and error.timed_out:
                    request = again(seen)
                    continue
                lost = error
            except NotFoundError:
                if request is first or seen > after:
                    raise
                request = first  # the first request never got there; it may be sent again
                continue
            except CapacityError as error:
                if request is first:
                    raise
                lost = error  # the server is there but not ready yet
            self._wait(backoff, lost)
            request = again(seen)

    def _stay_on(
        self,
        request: Request,
        make: Callable[[str, Mapping[str, Any], Optional[int]], Any],
        is_last: Optional[Callable[[Any], bool]] = None,
        hold: Optional["Hold"] = None,
    ) -> Iterator[Any]:
        """What `make` makes of a stream's events, over broken connections, until the server, or `hold`, ends it.

        A stream that has a last event is not over before that: then its end was a break, too.
        """
        hold = hold or Hold()
        backoff = self._backoff()
        seen: Optional[int] = None
        while True:
            if seen is not None:
                request.headers["Last-Event-ID"] = str(seen)
            try:
                with self._stream(request) as answer:
                    hold.answer = answer
                    decoder = EventDecoder(make)
                    for piece in answer.pieces():
                        if hold.over:
                            return
                        for event in _decode(decoder, piece):
                            seen = seen if decoder.last_id is None else decoder.last_id
                            backoff.reset()
                            yield event
                            if is_last is not None and is_last(event):
                                return
                if is_last is None:
                    return
                lost: PandastackError = APIConnectionError("the stream ended before its last event")
            except APIConnectionError as error:
                lost = error
            except CapacityError as error:
                if seen is None:
                    raise
                lost = error  # the server is there but not ready yet
            if hold.over:
                return
            self._wait(backoff, lost)

    def events(
        self, tail: int = 50, *, after: Optional[int] = None, follow: bool = False
    ) -> Iterator[LifeEvent]:
        """What happened to all sandboxes of the workspace, and to the server; the oldest first.

        Args:
            tail: so many of the last ones, at most 1000.
            after: instead, those with a higher number than this.
            follow: go on as they happen. A broken connection is taken up again where it broke.
        """
        for event in self._life(routes.events(None, tail, after, follow), follow):
            yield event

    def _life(self, request: Request, follow: bool) -> Iterator[LifeEvent]:
        if not follow:
            for body in (self._send(request)).items("events"):
                yield LifeEvent.from_wire(body)
            return
        for event in self._stay_on(request, lambda name, body, number: LifeEvent.from_wire(body)):
            yield event

    def _hold(self, throttle: Throttle, error: PandastackError) -> None:
        """Sleeps when the server asks for fewer calls a second, or raises the error."""
        pause = throttle.pause(error)
        if pause is None:
            raise error
        sleep(pause)

    def _backoff(self) -> Backoff:
        return Backoff(self._reconnect_seconds if self._reached else min(self._reconnect_seconds, FIRST_CALL_SECONDS))

    def _wait(self, backoff: Backoff, error: PandastackError, *, again: bool = True) -> None:
        """Sleeps before another try, or raises the error when there should be none."""
        if isinstance(error, APIConnectionError) and not error.sent:
            again = self._reached
        else:
            self._reached = True  # something was there
        pause = backoff.pause() if again else None
        if pause is None:
            raise error
        sleep(pause)


class Hold:
    """With which a stream is ended from elsewhere than where it is read."""

    def __init__(self) -> None:
        self.over = False
        self.answer: Optional[StreamResponse] = None

    def end(self) -> None:
        """Ends the stream soon."""
        self.over = True
        if self.answer is not None:
            self.answer.cancel()


class _Renew(Exception):
    """The connection is to be opened anew."""


def _decode(decoder: EventDecoder, piece: bytes) -> List[Any]:
    try:
        return list(decoder.feed(piece))
    except ValueError as error:
        raise ServerError(f"the server sent an event that can't be read: {error}") from None


def shared_client(api_url: Optional[str], api_key: Optional[str]) -> Client:
    """The client that all sandboxes of a server and key use together."""
    endpoint = find_endpoint(api_url, api_key)
    client: Client = shared(endpoint, lambda: Client(endpoint.url, endpoint.api_key))
    return client


PAGE = 500  # sandboxes that one answer brings


class Sandboxes:
    """The sandboxes of a server: ``client.sandboxes``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, template: str = "ubuntu-24.04", **options: Any) -> Any:
        """Makes a sandbox; takes the options of `Sandbox.create` and raises the same errors."""
        from .sandbox import Sandbox

        return Sandbox._create(self._client, template, **options)

    def get(self, id: str) -> Any:
        """The `Sandbox` with this id.

        Raises:
            NotFoundError: there is none.
        """
        from .sandbox import Sandbox

        body = (self._client._send(routes.get_sandbox(id))).object()
        return Sandbox(self._client, SandboxInfo.from_wire(body))

    def list(
        self,
        metadata: Optional[Dict[str, str]] = None,
        status: Optional[str] = None,
        limit: Optional[int] = None,
        *,
        template: Optional[str] = None,
    ) -> List[Any]:
        """The sandboxes of the key's workspace, the newest first, as a list of `Sandbox`; fetched page by page.

        Args:
            metadata: only those that carry all of these.
            status: only those in this state, such as "running".
            limit: at most so many. Default: all.
            template: only those of this template, by its name or an alias.
        """
        from .sandbox import Sandbox

        left = None if limit is None else check.whole("limit", limit)
        wanted = (metadata or {}).items()
        chosen: List[SandboxInfo] = []
        cursor: Optional[str] = None
        while True:
            size = PAGE if left is None else min(PAGE, left - len(chosen))
            answer = self._client._send(routes.list_sandboxes(metadata, status, template, size, cursor))
            infos = [SandboxInfo.from_wire(body) for body in answer.items("sandboxes")]
            chosen += [  # a server that doesn't know the filters has sent all
                info
                for info in infos
                if (status is None or info.status == status) and all(info.metadata.get(k) == v for k, v in wanted)
            ]
            cursor = answer.headers.get("x-next-cursor")
            if not cursor or left is not None and len(chosen) >= left:
                return [Sandbox(self._client, info) for info in chosen[:left]]

    def delete(self, id: str) -> None:
        """Kills the sandbox with this id.

        Raises:
            NotFoundError: there is none.
        """
        self._client._send(routes.kill_sandbox(id))


class Templates:
    """What sandboxes can be made from: ``client.templates``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self) -> List[TemplateInfo]:
        """All templates."""
        answer = self._client._send(routes.list_templates())
        return [TemplateInfo.from_wire(body) for body in answer.items("templates")]

    def get(self, name: str) -> TemplateInfo:
        """The template of this name or alias.

        Raises:
            NotFoundError: there is none; the message has the nearest names.
        """
        return TemplateInfo.from_wire((self._client._send(routes.get_template(name))).object())


class Tokens:
    """API keys: ``client.tokens``. All of it needs a key with the scope ``admin``.

    Scopes are ``read`` (look), ``run`` (make, use and end sandboxes) and ``admin`` (manage keys); each includes those
    before it. A key reaches the sandboxes of its workspace and no others.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self, workspace: Optional[str] = None) -> List[Token]:
        """The keys, without the secrets, oldest first. Expired ones are listed for another 30 days.

        Args:
            workspace: whose; default the client's own. ``"*"`` means all; another than the client's own is only for
                admins of the workspace ``local``.

        Raises:
            AuthError: the client's key may not.
        """
        answer = self._client._send(routes.list_tokens(workspace))
        return [Token.from_wire(body) for body in answer.items("tokens")]

    def create(
        self,
        label: str,
        expires_in_days: Optional[int] = None,
        *,
        scopes: Optional[List[str]] = None,
        expires_at: Optional[datetime] = None,
        workspace: Optional[str] = None,
    ) -> Token:
        """Makes a key that can do no more than the client's own. Its `token` is in this answer only.

        Args:
            label: what it is for, in words; at most 100 bytes.
            expires_in_days: 1 to 3650. Default: when the client's own key expires, which may be never.
            scopes: of ``"read"``, ``"run"``, ``"admin"``. Default: ``["run"]``.
            expires_at: a datetime instead of `expires_in_days`.
            workspace: whose sandboxes it reaches. Default: the client's own; another one is only for admins of the
                workspace ``local``.

        Raises:
            AuthError: the client's key may not make such a key.
            BadRequestError: an argument is out of bounds; `field` says which.
        """
        request = routes.create_token(label, expires_in_days, scopes, expires_at, workspace)
        return Token.from_wire((self._client._send(request)).object(), label=label)

    def revoke(self, prefix: str) -> None:
        """Ends a key at once, and within a second whatever is in progress with it.

        Args:
            prefix: its first 12 characters, `Token.prefix`.

        Raises:
            NotFoundError: there is none.
        """
        self._client._send(routes.delete_token(prefix))

    delete = revoke  # the word of the other resources


def _download(client: Client, request: Request, local: Union[str, Path]) -> int:
    """Streams an answer into a local file, which appears when it is complete. Gives its size in bytes."""
    target = Path(local)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    size = 0
    try:
        with open(part, "wb") as file:
            with client._stream(request) as answer:
                for piece in answer.pieces():
                    write_piece(file, piece)
                    size += len(piece)
        os.replace(part, target)
    finally:
        if part.exists():
            part.unlink()
    return size


class Snapshots:
    """The snapshots that are kept: ``client.snapshots``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self, sandbox_id: Optional[str] = None) -> List[SnapshotID]:
        """All snapshots, or those of one sandbox; newest first."""
        answer = self._client._send(routes.list_snapshots(sandbox_id))
        return [SnapshotID.from_wire(body) for body in answer.items("snapshots")]

    def get(self, id: str) -> SnapshotID:
        """The snapshot with this id.

        Raises:
            NotFoundError: there is none.
        """
        return SnapshotID.from_wire((self._client._send(routes.get_snapshot(id))).object())

    def update(
        self,
        id: str,
        *,
        name: Optional[str] = None,
        metadata: Optional[Dict[str, str]] = None,
        ttl_seconds: Optional[int] = None,
    ) -> SnapshotID:
        """Changes what a snapshot is called and carries, and how long it is kept; what is None stays.

        Args:
            metadata: replaces all of it.
            ttl_seconds: seconds from now after which it is removed; 0: it stays until somebody removes it.

        Raises:
            NotFoundError: there is none.
        """
        return SnapshotID.from_wire((self._client._send(routes.update_snapshot(id, name, metadata, ttl_seconds))).object())

    def export_archive(self, id: str, local: Union[str, Path]) -> int:
        """Streams a snapshot into a local file, which another server can import; it appears when it is complete.

        It is not encrypted: the memory of the sandbox is in it, with every secret that was there.

        Returns:
            The file's size in bytes.

        Raises:
            NotFoundError: there is no such snapshot.
            OSError: the local file can't be written.
            APIConnectionError: the connection broke; nothing is left behind.
        """
        return _download(self._client, routes.export_snapshot(id), local)

    def import_archive(self, source: Union[str, Path, bytes, Upload], *, name: Optional[str] = None) -> ImportedSnapshot:
        """Makes a snapshot of a file that `export_archive` wrote, whole or not at all.

        What the server did not export itself for the same workspace needs the scope ``admin``, and a signature whose key
        stands in the server's setting ``snapshot_trusted_keys``.

        Args:
            source: the path of the file, its bytes, or an open file, which is streamed from where it stands.
            name: what to call it. Default: as it was called.

        Raises:
            OSError: the local file can't be read.
            BadRequestError: it is damaged, cut off, or no archive; or too large (status 413).
            AuthError: the server does not trust whoever signed it, or the key lacks the scope.
            ConflictError: the template is not here, or processor or version do not fit.
            CapacityError: there is no room on the disk (status 507), or too many come at once.
        """
        if isinstance(source, (str, Path)):
            with open(source, "rb") as file:
                return self.import_archive(file, name=name)
        answer = self._client._send(routes.import_snapshot(source, name))
        return ImportedSnapshot.from_wire(answer.object())

    def delete(self, id: str) -> None:
        """Removes a snapshot.

        Raises:
            NotFoundError: there is none.
        """
        self._client._send(routes.delete_snapshot(id))


class Secrets:
    """The secrets that the server keeps for the workspace: ``client.secrets``. They go in and never come out."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def set(self, name: str, value: str) -> None:
        """Keeps a secret, in place of an earlier one of the same name; needs the scope ``admin``.

        Args:
            name: what `secrets` of a create calls it as "ref".
            value: the whole value of a header, such as "Bearer …".
        """
        self._client._send(routes.put_secret(name, value))

    def list(self) -> List[str]:
        """The names of all."""
        return [str(body["name"]) for body in (self._client._send(routes.list_secrets())).items("secrets")]

    def delete(self, name: str) -> None:
        """Forgets a secret; needs the scope ``admin``. Requests of sandboxes that use it fail from then on.

        Raises:
            NotFoundError: there is none.
        """
        self._client._send(routes.delete_secret(name))


def _approvals(client: Client) -> "Approvals":
    from .tools import Approvals  # which needs this module

    return Approvals(client)
