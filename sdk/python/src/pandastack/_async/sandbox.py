"""The sandbox: where an agent's code runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, AsyncIterator, Callable, Dict, List, Optional, Sequence, Union

from .. import _checks as check
from .. import _routes as routes
from .._functions import Toolset
from .._request import Upload
from ..errors import NotFoundError
from ..execution import Execution, Result
from ..records import (
    Candidate,
    ContextInfo,
    ExecResult,
    Exploration,
    LifeEvent,
    Lifecycle,
    Metrics,
    Outcome,
    Port,
    SandboxInfo,
    SnapshotID,
    preview_address,
)
from .client import AsyncClient, shared_client
from .commands import AsyncCommands, Command
from .context import AsyncCodeContext
from .explore import explore
from .filesystem import AsyncFilesystem
from .network import AsyncNetwork
from .pty import AsyncPty
from .tools import AsyncTools

DEFAULT_CONTEXT = "default"


class AsyncSandbox:
    """A Linux of its own with a warm Python interpreter. Made by `create`, found by `get` and `list`.

    A context manager: it kills the sandbox at the end.

    Attributes:
        info: the `SandboxInfo` as last heard; `refresh` asks anew. Its parts are also here: `id`, `template`,
            `status`, `metadata`, `created_at`, `expires_at`.
        filesystem: its files.
        commands: its commands.
        network: what it may reach, and what it tried.
        pty: its terminals.
        tools: the functions outside that Python in it can call.
    """

    def __init__(self, client: AsyncClient, info: SandboxInfo) -> None:
        self._client = client
        self.info = info
        self.filesystem = AsyncFilesystem(client, info.id)
        self.commands = AsyncCommands(client, info.id)
        self.network = AsyncNetwork(client, info.id)
        self.pty = AsyncPty(client, info.id)
        self.tools = AsyncTools(client, info.id)

    @classmethod
    async def create(
        cls,
        template: str = "ubuntu-24.04",
        *,
        from_snapshot: Optional[str] = None,
        ttl_seconds: Optional[int] = None,
        idle_timeout_seconds: Optional[int] = None,
        persistent: bool = False,
        metadata: Optional[Dict[str, str]] = None,
        envs: Optional[Dict[str, str]] = None,
        cpu: Optional[float] = None,
        memory_mb: Optional[int] = None,
        disk_mb: Optional[int] = None,
        pids: Optional[int] = None,
        network: Any = None,
        secrets: Any = None,
        tools: Any = None,
        tool_policy: Any = None,
        volumes: Any = None,
        reseed: bool = True,
        idempotency_key: Optional[str] = None,
        api_url: Optional[str] = None,
        api_key: Optional[str] = None,
    ) -> "AsyncSandbox":
        """Makes a sandbox; it answers when this returns.

        Args:
            template: what it is made from: "code-interpreter" has the Python stack; "ubuntu-24.04" is an alias of
                "base".
            from_snapshot: a snapshot's id, instead of `template`.
            ttl_seconds: its life on the wall clock, until `set_ttl`. Default: 300; the server has a ceiling.
            idle_timeout_seconds: hibernate it when nobody calls for so long. Default: never.
            persistent: hibernate instead of kill when its life is over.
            metadata: strings to find it by.
            envs: variables for its cells and commands.
            cpu: cores, 0.1 or more. memory_mb, disk_mb: MiB, 128 and 16 or more. pids: processes and threads, 16 or
                more. Default: the template's; the server has ceilings. Only a `cpu` that shows another number of
                cores (never fewer than 2 are shown) makes the create slower, since it misses the pool.
            network: what it may reach; nothing by default. ``{"allow": ["packages.example.org", "*.example.com", "10.1.0.0/16"]}``,
                with "mode" ("deny", "allow-list", "open"), "deny", "policy", "rate", "bytes", "flows", "flow_rate".
            secrets: headers that are added to requests on their way out, by host, so that they never enter the sandbox:
                ``{"api.example.com": {"header": "Authorization", "value": "Bearer …"}}``, or "ref" for one that
                `client.secrets` keeps.
            tools: what Python in it calls as ``from tools import …``: a list of functions of this program (their schema is
                made of type hints and docstring; a mapping puts some into a namespace), `OpenAPI`, `MCPServer`, and names
                of tools that the server's settings declare. Functions are called here, in threads of their own, as long
                as this program lives and until `kill`.
            tool_policy: which calls are carried out: ``{"approve": "never" | "risky" | "always", "rules": [{"tool":
                "crm.delete_*", "action": "allow" | "ask" | "deny"}], "timeout_seconds", "rate", "max_calls", "expire_seconds"}``.
            volumes: handed to the server as it is; one that can't do it answers 501.
            reseed: make random state new; False keeps what the template had.
            idempotency_key: for 24 hours the same key with the same options stands for the same sandbox. Default: a new
                one, which covers the tries that this call makes itself when its connection breaks.
            api_url, api_key: the server and the key. Default: as for `AsyncClient`.

        Raises:
            TypeError, ValueError: an argument is of the wrong type or out of range.
            AuthError: the key is missing or wrong.
            NotFoundError: no such template or snapshot; the message has the nearest names.
            ConflictError: the `idempotency_key` stands for a sandbox with other options, or for one that has ended.
            CapacityError, RateLimitError: no room; `retry_after` says when to try again.
            APIConnectionError: the server can't be reached.
        """
        return await cls._create(
            shared_client(api_url, api_key),
            template,
            from_snapshot=from_snapshot,
            ttl_seconds=ttl_seconds,
            idle_timeout_seconds=idle_timeout_seconds,
            persistent=persistent,
            metadata=metadata,
            envs=envs,
            cpu=cpu,
            memory_mb=memory_mb,
            disk_mb=disk_mb,
            pids=pids,
            network=network,
            secrets=secrets,
            tools=tools,
            tool_policy=tool_policy,
            volumes=volumes,
            reseed=reseed,
            idempotency_key=idempotency_key,
        )

    @classmethod
    async def _create(cls, client: AsyncClient, template: str, **options: Any) -> "AsyncSandbox":
        defaults: Dict[str, Any] = dict.fromkeys(
            (
                "from_snapshot",
                "ttl_seconds",
                "idle_timeout_seconds",
                "metadata",
                "envs",
                "cpu",
                "memory_mb",
                "disk_mb",
                "pids",
                "network",
                "secrets",
                "tools",
                "tool_policy",
                "volumes",
                "idempotency_key",
            )
        )
        defaults.update(persistent=False, reseed=True)
        options = {**defaults, **options}
        tools, policy = options.pop("tools"), options.pop("tool_policy")
        given = Toolset(tools or [], policy) if tools is not None or policy is not None else None
        request = routes.create_sandbox(template=template, tools=given.wire if given else None, **options)
        made = cls(client, SandboxInfo.from_wire((await client._send(request)).object()))
        if given and given.functions:
            try:
                await made.tools._connect(given.functions)
            except BaseException:
                await made.kill()
                raise
        return made

    @classmethod
    async def get(cls, id: str, *, api_url: Optional[str] = None, api_key: Optional[str] = None) -> "AsyncSandbox":
        """The sandbox with this id.

        Raises:
            NotFoundError: there is none; the message has the nearest ids.
        """
        sandbox: AsyncSandbox = await shared_client(api_url, api_key).sandboxes.get(id)
        return sandbox

    @classmethod
    async def list(
        cls,
        metadata: Optional[Dict[str, str]] = None,
        status: Optional[str] = None,
        limit: Optional[int] = None,
        *,
        template: Optional[str] = None,
        api_url: Optional[str] = None,
        api_key: Optional[str] = None,
    ) -> List["AsyncSandbox"]:
        """The sandboxes of the key's workspace, the newest first; fetched page by page.

        Args:
            metadata: only those that carry all of these.
            status: only those in this state, such as "running".
            limit: at most so many. Default: all.
            template: only those of this template, by its name or an alias.
        """
        return await shared_client(api_url, api_key).sandboxes.list(metadata, status, limit, template=template)

    @property
    def id(self) -> str:
        """Its id."""
        return self.info.id

    @property
    def template(self) -> str:
        """The template it was made from."""
        return self.info.template

    @property
    def status(self) -> str:
        """Its state as last heard: "running" and so on, see `SandboxInfo`."""
        return self.info.status

    @property
    def metadata(self) -> Dict[str, str]:
        """The strings it was created with."""
        return self.info.metadata

    @property
    def created_at(self) -> Optional[datetime]:
        """When it was made, an aware datetime, None when unknown."""
        return self.info.created_at

    @property
    def expires_at(self) -> Optional[datetime]:
        """When its life is over, an aware datetime, None when unknown."""
        return self.info.expires_at

    async def refresh(self) -> SandboxInfo:
        """Asks the server for its state anew; the answer is also in `info` from then on.

        Raises:
            NotFoundError: it is gone.
        """
        self.info = SandboxInfo.from_wire((await self._client._send(routes.get_sandbox(self.id))).object())
        return self.info

    # Code

    async def run_code(
        self,
        code: str,
        *,
        language: str = "python",
        timeout_seconds: float = 30,
        on_stdout: Optional[Callable[[str], Any]] = None,
        on_stderr: Optional[Callable[[str], Any]] = None,
        on_result: Optional[Callable[[Result], Any]] = None,
    ) -> Execution:
        """Runs a cell in the context "default", which keeps its state from call to call.

        Args:
            code: as for `AsyncCodeContext.run_code`.
            language: "python", or one of the server's others ("bash", "javascript"), which run once, keep no state
                and call none of the callbacks.
            timeout_seconds: the cell's deadline.
            on_stdout, on_stderr, on_result: called as the output comes.

        Raises: as `AsyncCodeContext.run_code`.
        """
        language = check.language(language)
        if language == "python":
            default = AsyncCodeContext(self._client, self.id, DEFAULT_CONTEXT)
            return await default.run_code(
                code,
                timeout_seconds=timeout_seconds,
                on_stdout=on_stdout,
                on_stderr=on_stderr,
                on_result=on_result,
            )
        answer = await self._client._send(routes.run_once(self.id, language, code, timeout_seconds))
        return Execution.from_wire(answer.object())

    async def languages(self) -> List[str]:
        """The languages that `run_code` knows."""
        answer = await self._client._send(routes.list_languages(self.id))
        return [str(name) for name in answer.object()["languages"]]

    async def create_code_context(
        self,
        language: str = "python",
        *,
        cwd: str = "/workspace",
        envs: Optional[Dict[str, str]] = None,
        id: Optional[str] = None,
    ) -> AsyncCodeContext:
        """Makes an interpreter of its own that keeps its state.

        Args:
            language: "python".
            cwd: the folder it starts in.
            envs: variables beside those of the sandbox.
            id: an id of your own. Default: the server chooses.

        Raises:
            BadRequestError: the template has no such language.
            RateLimitError: there are too many.
        """
        body = (await self._client._send(routes.create_context(self.id, language, cwd, envs, id))).object()
        return AsyncCodeContext(self._client, self.id, body["id"], body.get("language") or "python")

    async def contexts(self) -> List[AsyncCodeContext]:
        """The interpreters there are, each with its state as of now in `AsyncCodeContext.info`."""
        answer = await self._client._send(routes.list_contexts(self.id))
        infos = [ContextInfo.from_wire(body) for body in answer.items("contexts", "sessions")]
        return [AsyncCodeContext(self._client, self.id, info.id, info.language) for info in infos]

    async def context(self, id: str = DEFAULT_CONTEXT) -> AsyncCodeContext:
        """The interpreter with this id; "default" is made on first use.

        Raises:
            NotFoundError: there is none; the message has those there are.
        """
        if id == DEFAULT_CONTEXT:
            return AsyncCodeContext(self._client, self.id, id)
        info = ContextInfo.from_wire((await self._client._send(routes.get_context(self.id, id))).object())
        return AsyncCodeContext(self._client, self.id, info.id, info.language)

    # Commands

    async def exec(
        self,
        cmd: Command,
        *,
        timeout_seconds: float = 60,
        cwd: str = "/workspace",
        envs: Optional[Dict[str, str]] = None,
        user: Union[None, str, int] = None,
        stdin: Union[None, str, bytes, Upload] = None,
        check: bool = False,
    ) -> ExecResult:
        """Runs a command and waits for it.

        Args:
            cmd: a str for the shell (bash), or a list of arguments.
            timeout_seconds: its deadline, which ends all of its session.
            cwd: its working folder.
            envs: variables beside those of the sandbox.
            user: a name or number. Default: root.
            stdin: all of its standard input: str, bytes, or an open file, of any size. Default: none.
            check: raise CommandError for a status other than 0.

        Raises:
            SandboxTimeout: it did not end in time; has the output so far.
            CommandError: with `check`.
            NotFoundError: no such sandbox.
            APIConnectionError: the connection broke and could not be made again; the command may have run.
        """
        return await self.commands._exec(cmd, timeout_seconds, cwd, envs, user, stdin, check)

    # Life

    async def kill(self) -> None:
        """Ends the sandbox and all in it. Does nothing when it is gone."""
        self.tools.close()
        try:
            await self._client._send(routes.kill_sandbox(self.id))
        except NotFoundError:
            pass

    async def set_lifecycle(
        self,
        *,
        ttl_seconds: Optional[int] = None,
        idle_timeout_seconds: Optional[int] = None,
        persistent: Optional[bool] = None,
    ) -> Lifecycle:
        """Changes how long it has and what happens then; what is None stays.

        Args:
            ttl_seconds: so many seconds from now.
            idle_timeout_seconds: hibernate it when nobody calls for so long; 0 for never.
            persistent: hibernate instead of kill when its life is over.

        Raises:
            BadRequestError: more than the server's ceiling.
        """
        request = routes.set_lifecycle(self.id, ttl_seconds, idle_timeout_seconds, persistent)
        return Lifecycle.from_wire((await self._client._send(request)).object())

    async def set_ttl(self, seconds: int) -> Lifecycle:
        """Gives it so many seconds from now.

        Raises:
            BadRequestError: more than the server's ceiling.
        """
        return await self.set_lifecycle(ttl_seconds=seconds)

    async def set_persistent(self, persistent: bool) -> Lifecycle:
        """Whether it is hibernated instead of killed when its life is over."""
        return await self.set_lifecycle(persistent=persistent)

    async def lifecycle(self) -> Lifecycle:
        """How long it has, and how long nobody has called."""
        return Lifecycle.from_wire((await self._client._send(routes.get_lifecycle(self.id))).object())

    async def metrics(self) -> Metrics:
        """What it may use and uses now, and how often it met each limit.

        Raises:
            NotFoundError: it is gone.
            ConflictError: it is being created, or has ended.
        """
        return Metrics.from_wire((await self._client._send(routes.get_metrics(self.id))).object())

    async def pause(self) -> None:
        """Stops all in it until `resume`; memory is kept, and also written to disk, so that it survives a reboot.

        Cells and commands are refused meanwhile (ConflictError).
        """
        await self._client._send(routes.change_state(self.id, "pause"))

    async def resume(self) -> None:
        """Lets it go on after `pause`."""
        await self._client._send(routes.change_state(self.id, "resume"))

    async def hibernate(self, *, carry_running: bool = False) -> None:
        """Saves it to disk and frees its memory; any call wakes it.

        Args:
            carry_running: don't wait for running cells: they go on when it wakes. Who waits for one is told (ConflictError).

        Raises:
            ConflictError: cells were still running after 10 s.
            CapacityError: the server's disk can't hold it; it goes on running.
            ServerError: this server can't do it (status 501).
        """
        await self._client._send(routes.hibernate(self.id, carry_running))

    async def wake(self) -> None:
        """Brings it back after `hibernate`.

        Raises:
            ServerError: this server can't do it (status 501).
        """
        await self._client._send(routes.change_state(self.id, "wake"))

    async def snapshot(
        self,
        name: Optional[str] = None,
        metadata: Optional[Dict[str, str]] = None,
        *,
        carry_running: bool = False,
        ttl_seconds: Optional[int] = None,
    ) -> SnapshotID:
        """Keeps its files, memory, processes and contexts as they are now, for ``create(from_snapshot=…)``. It goes on.

        Args:
            name: what to call it. metadata: strings to keep with it.
            carry_running: don't wait for running cells: every copy goes on with them.
            ttl_seconds: seconds after which it is removed. Default: it stays until somebody removes it.

        Raises:
            ConflictError: cells were still running after 10 s.
            CapacityError: the server's disk can't hold it.
            ServerError: this server can't do it (status 501).
        """
        request = routes.snapshot(self.id, name, metadata, carry_running, ttl_seconds)
        return SnapshotID.from_wire((await self._client._send(request)).object())

    async def fork(
        self,
        count: Optional[int] = None,
        *,
        metadata: Optional[Dict[str, str]] = None,
        envs: Optional[Dict[str, str]] = None,
        ttl_seconds: Optional[int] = None,
        reseed: bool = True,
        carry_running: bool = False,
    ) -> Any:
        """Copies it as it is now, with its files, processes, interpreters and their variables. It goes on.

        Each copy has memory of its own, as much as the parent uses.

        Args:
            count: how many copies, 1 to 16. Default: one.
            metadata: strings for the copies, on top of the parent's.
            envs: variables for new processes, on top of the parent's.
            ttl_seconds: the copies' lives from now. Default: the parent's.
            reseed: make random state new in each.
            carry_running: don't wait for running cells: every copy goes on with them.

        Returns:
            One `AsyncSandbox`, or a list of them when `count` is given.

        Raises:
            ConflictError: cells were still running after 10 s.
            CapacityError: there is no memory for so many, or no disk; nothing was copied.
            ServerError: this server can't do it (status 501).
        """
        request = routes.fork(self.id, "fork", count, metadata, envs, ttl_seconds, reseed, carry_running)
        answer = await self._client._send(request)
        made = await self._children(answer.json())
        return made[0] if count is None else made

    async def fork_tree(
        self,
        count: int = 2,
        *,
        metadata: Optional[Dict[str, str]] = None,
        envs: Optional[Dict[str, str]] = None,
        ttl_seconds: Optional[int] = None,
        reseed: bool = True,
        carry_running: bool = False,
    ) -> List["AsyncSandbox"]:
        """Copies it into a tree of branches, of which `promote` keeps one.

        Args and errors: as `fork`.
        """
        request = routes.fork(self.id, "fork-tree", count, metadata, envs, ttl_seconds, reseed, carry_running)
        return await self._children((await self._client._send(request)).json())

    async def promote(self, *, cleanup_siblings: bool = False, tree_id: Optional[str] = None) -> Dict[str, Any]:
        """Makes this branch of a tree the one that stays.

        Returns:
            ``{"winner", "tree_id", "deleted": [ids], "failures": {id: message}}``

        Raises:
            ServerError: this server can't do it (status 501).
        """
        return (await self._client._send(routes.promote(self.id, cleanup_siblings, tree_id))).object()

    async def explore(
        self,
        candidates: Sequence[Union[str, Candidate]],
        *,
        score: Optional[Callable[[Outcome], float]] = None,
        select: str = "max",
        max_concurrency: int = 4,
        require_success: bool = True,
        cleanup_losers: bool = True,
        promote_winner: bool = True,
        capture_files: bool = True,
        timeout_seconds: float = 60,
        metadata: Optional[Dict[str, str]] = None,
    ) -> Exploration:
        """Tries commands side by side, each in a copy of this sandbox, and keeps the best.

        Args:
            candidates: 1 to 16 commands.
            score: gives an `Outcome` a number; one with NaN is not chosen. With `require_success` only those that
                ended with status 0 are scored. Default: 1 for a status of 0, else 0.
            select: "max" or "min" of the score; of equals the quickest is chosen.
            max_concurrency: how many run at once.
            require_success: choose only among those that ended with status 0.
            cleanup_losers: end the other copies.
            promote_winner: mark the chosen one.
            capture_files: tell which files each wrote.
            timeout_seconds: the deadline of each.
            metadata: strings for the copies.

        Raises:
            ExploreError: none could be chosen; has the outcomes.
            ConflictError, CapacityError: as `fork`.
        """
        return await explore(
            self,
            candidates,
            score=score,
            select=select,
            max_concurrency=max_concurrency,
            require_success=require_success,
            cleanup_losers=cleanup_losers,
            promote_winner=promote_winner,
            capture_files=capture_files,
            timeout_seconds=timeout_seconds,
            metadata=metadata,
        )

    async def _children(self, decoded: Any) -> List["AsyncSandbox"]:
        if isinstance(decoded, dict):
            for name in ("children", "items", "sandboxes"):
                if isinstance(decoded.get(name), list):
                    decoded = decoded[name]
                    break
            else:
                decoded = [decoded.get("sandbox") or decoded]
        made = []
        for child in decoded or []:
            if isinstance(child, str):
                child = {"id": child}
            # What the answer leaves out is as in the parent; addresses and times are the child's own.
            known = {"template": self.template, "status": "running", "metadata": dict(self.metadata), **child}
            copy = type(self)(self._client, SandboxInfo.from_wire(known))
            await copy.tools._connect(self.tools._functions)  # its calls are its own
            made.append(copy)
        return made

    # Ways in and what it says

    def preview_url(self, port: int, scheme: Optional[str] = None) -> str:
        """The address of a server in the sandbox; no call is made.

        It opens nothing: a port is private unless `name_port` made it public. Send the key as
        `Authorization: Bearer pds_…`, or use `signed_preview_url` for a browser.

        Args:
            port: that the server listens on.
            scheme: "http" or "https"; that of the API when left out, and "http" below localhost.
        """
        return preview_address(self._client.api_url, self.info.preview_host, self.id, check.port(port), scheme)

    async def signed_preview_url(
        self, port: int, ttl_seconds: int = 3600, paths: Optional[Sequence[str]] = None
    ) -> str:
        """An address with a token in it, which opens a port to whoever has it: until it expires, the client's key
        ends, or the sandbox does. A browser is led on to the port's own address.

        Args:
            port: that the server listens on.
            ttl_seconds: at most 604800, which are 7 days.
            paths: that it opens, each with all below it; all when left out.

        Raises:
            BadRequestError: a port, a time or a path that can't be.
        """
        answer = await self._client._send(routes.signed_preview(self.id, port, ttl_seconds, paths))
        return str(answer.object()["url"])

    async def ports(self) -> List[Port]:
        """What listens in the sandbox, and what was named, by number. It isn't woken: in one that sleeps nothing
        listens. Each is an `int` that knows more.

        Raises:
            ServerError: the agent in it is of a version that can't tell (status 501).
        """
        items = (await self._client._send(routes.ports(self.id))).items("ports")
        return [Port.from_wire(item) for item in items]

    async def name_port(self, port: int, label: str = "", *, public: bool = False) -> Port:
        """Names a port, or makes it public, which opens it to everybody who knows its address.

        What was said of it before is replaced; copies of the sandbox don't have it.
        """
        return Port.from_wire((await self._client._send(routes.name_port(self.id, port, label, public))).object())

    async def forget_port(self, port: int) -> None:
        """Forgets what was said of a port. What listens goes on.

        Raises:
            NotFoundError: nothing was said of it.
        """
        await self._client._send(routes.forget_port(self.id, port))

    async def preview_urls(self) -> Dict[int, str]:
        """`preview_url` for each of `ports` on which something listens."""
        return {int(port): self.preview_url(port) for port in await self.ports() if port.listening}

    async def events(
        self, tail: int = 50, *, after: Optional[int] = None, follow: bool = False
    ) -> AsyncIterator[LifeEvent]:
        """What happened to the sandbox, the oldest first; also for a while after it has ended.

        Args:
            tail: so many of the last ones, at most 1000.
            after: instead, those with a higher number than this.
            follow: go on as they happen, until it has ended. A broken connection is taken up again where it broke.

        Raises:
            NotFoundError: no such sandbox.
        """
        async for event in self._client._life(routes.events(self.id, tail, after, follow), follow):
            yield event

    async def logs(self, stream: str = "both") -> str:
        """The last lines of its console and of the log of the agent in it: at most 2000, and 256 KiB.

        Args:
            stream: "stdout", the console; "stderr", the agent's log; or "both".

        Raises:
            ConflictError: it is paused, or has ended.
            ServerError: the agent in it is of a version that can't do it (status 501).
        """
        answer = await self._client._send(routes.logs(self.id, stream, False))
        return answer.body.decode("utf-8", "replace")

    async def follow_logs(self, stream: str = "both") -> AsyncIterator[str]:
        """The lines of `logs` and those that come, without their ends, until the sandbox has ended.

        Args:
            stream: "stdout", "stderr" or "both".

        Raises: as `logs`.
        """
        request = routes.logs(self.id, stream, True)
        async for line in self._client._stay_on(request, lambda name, body, number: str(body.get("line", ""))):
            yield line

    async def __aenter__(self) -> "AsyncSandbox":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.kill()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, template={self.template!r}, status={self.status!r})"
