# Generated from ../_async/agent.py by tools/generate_sync.py: change that file, then run the tool.
"""Agents: a model that does a task by writing Python in a sandbox."""

from __future__ import annotations

from typing import Any, Iterator, Callable, Dict, List, Mapping, Optional, Sequence, Union

from .. import _checks as check
from .. import _routes as routes
from .._connector import Connector
from .._functions import Function, Toolset
from .._request import Request
from ..errors import ConflictError
from ..records import AgentEvent, AgentInfo
from .client import Client, shared_client
from .transport import current_loop, settled

Files = Union[Sequence[str], Mapping[str, Union[str, bytes]]]


class Agent:
    """An agent: a model that does tasks by writing Python, each in a sandbox.

        agent = Agent("openai:gpt-4o")
        run = agent.run("Which region sold most?", files=["sales.csv"])
        print(run.answer)

    The loop runs on the server, so a run goes on when this program ends.

    Args:
        model: ``PROVIDER:NAME`` with the provider openai (anything that speaks chat completions) or anthropic. Default:
            the server's own.
        base_url: of a provider elsewhere than the server has it; needs an admin key.
        model_key: key for the provider, for these runs; the server does not store it. Default: the server's own.
        dialect: how the model writes code: ``"text"``, in fences, or ``"tool"``, as calls of a tool.
        vision: the model is shown figures; otherwise they are told in words.
        instructions: added to the system prompt.
        template: of the sandbox; so are all down to `secrets`, which mean what they mean for `Sandbox.create`.
        from_snapshot: a snapshot to make it from, instead of a template: its files are there, its variables are not.
        cpu, memory_mb, disk_mb, pids: its limits; default the template's.
        envs: environment of the code. It stands in the transcript.
        network: what the code may reach, such as ``{"allow": ["api.example.com"]}``; nothing by default. The model is told.
        secrets: headers that are added to its requests on their way out, such as
            ``{"api.example.com": {"header": "Authorization", "ref": "example-key"}}``. The model is told for which hosts.
        keep: what becomes of the sandbox at the end: ``"kill"``, ``"keep"`` or ``"snapshot"``.
        limits: such as ``{"max_turns": 10, "max_seconds": 300, "max_tokens": 100_000, "cell_seconds": 30}``.
        tools: what the model's code can call outside of the sandbox, as `tools` of `Sandbox.create`. Functions are
            called here, so runs that use them need this program; a call meanwhile is "unavailable".
        tool_policy: which calls are carried out, and which somebody is asked about, as of `Sandbox.create`.
        price: ``{"input": …, "output": …}`` in US dollars a million tokens; needed for the limit ``max_cost_usd``.
        api_url, api_key: as for `Sandbox.create`.
    """

    def __init__(
        self,
        model: Optional[str] = None,
        *,
        base_url: Optional[str] = None,
        model_key: Optional[str] = None,
        dialect: str = "text",
        vision: bool = True,
        instructions: Optional[str] = None,
        template: Optional[str] = None,
        from_snapshot: Optional[str] = None,
        cpu: Optional[float] = None,
        memory_mb: Optional[int] = None,
        disk_mb: Optional[int] = None,
        pids: Optional[int] = None,
        envs: Optional[Dict[str, str]] = None,
        network: Any = None,
        secrets: Any = None,
        keep: str = "kill",
        limits: Optional[Dict[str, float]] = None,
        price: Optional[Dict[str, float]] = None,
        tools: Any = None,
        tool_policy: Optional[Dict[str, Any]] = None,
        api_url: Optional[str] = None,
        api_key: Optional[str] = None,
    ) -> None:
        self._server = api_url, api_key
        given = Toolset(tools or [], tool_policy) if tools is not None or tool_policy is not None else None
        self._program = _Program(given.functions if given else {})
        self._options: Dict[str, Any] = {
            "model": model,
            "base_url": base_url,
            "dialect": check.text("dialect", dialect),
            "vision": check.flag("vision", vision),
            "instructions": instructions,
            "keep": check.text("keep", keep),
            "limits": limits,
            "price": price,
            "tools": given.wire if given else None,
        }
        self._sandbox = routes.agent_sandbox(template, from_snapshot, cpu, memory_mb, disk_mb, pids, envs, network, secrets)
        self._model_key = model_key

    def run(
        self,
        task: str,
        *,
        files: Optional[Files] = None,
        sandbox_id: Optional[str] = None,
        data: Optional[Sequence[str]] = None,
        follows: Optional[str] = None,
        metadata: Optional[Dict[str, str]] = None,
        on_event: Optional[Callable[[AgentEvent], Any]] = None,
    ) -> "AgentRun":
        """Does a task and waits for the end of it. A run that ends without an answer is no error: look at `reason`.

        Args:
            task: what is to be done, in words.
            files: put into ``/workspace`` before: paths of files here, or a dict of names to contents.
            sandbox_id: work in this sandbox, which is kept as it is: `keep` and what this agent's own sandboxes get are not for it.
            data: files in the sandbox, absolute or below /workspace, that are loaded as tables before the model is asked.
            follows: a run that has ended, whose sandbox is still there: go on in it, with its variables.
            metadata: labels of your own.
            on_event: called with each `AgentEvent`.

        Raises:
            BadRequestError: something of it cannot work; `field` says what.
            CapacityError: the server has no room.
        """
        run = self.start(task, files=files, sandbox_id=sandbox_id, data=data, follows=follows, metadata=metadata)
        run.wait(on_event)
        return run

    def start(
        self,
        task: str,
        *,
        files: Optional[Files] = None,
        sandbox_id: Optional[str] = None,
        data: Optional[Sequence[str]] = None,
        follows: Optional[str] = None,
        metadata: Optional[Dict[str, str]] = None,
    ) -> "AgentRun":
        """As `run`, without waiting: the run goes on by itself."""
        options = dict(self._options)
        client = shared_client(*self._server)
        if data is not None:
            options["data"] = check.texts("data", data)
        if follows is not None:
            options.update(follows=check.text("follows", follows), keep=None)
            if options["tools"] is None:  # it has those of the run before
                self._program.must_have(AgentInfo.from_wire((client._send(routes.get_agent(follows))).object()))
        elif sandbox_id is not None:
            options.update(sandbox_id=check.text("sandbox_id", sandbox_id), keep=None)
        else:
            options.update(self._sandbox)
        request = routes.start_agent(task, _contents(files), metadata, self._model_key, options)
        run = AgentRun(client, AgentInfo.from_wire((client._send(request)).object()), self._program)
        self._program.serve(client, run.info)
        return run

    def get(self, id: str) -> "AgentRun":
        """The run with this id. Replays and forks of it call the functions of this agent. So does the run itself from then on,
        if it goes on and calls some of their names: those of a program that was started again.

        Raises:
            NotFoundError: there is none.
        """
        client = shared_client(*self._server)
        run = AgentRun(client, AgentInfo.from_wire((client._send(routes.get_agent(id))).object()), self._program)
        if not self._program.functions.keys().isdisjoint(run.info.functions):
            self._program.serve(client, run.info)
        return run

    def runs(self, limit: int = 100) -> List["AgentRun"]:
        """The runs of the workspace, the newest first; at most `limit`."""
        client = shared_client(*self._server)
        answer = client._send(routes.list_agents(limit))
        return [AgentRun(client, AgentInfo.from_wire(body), self._program) for body in answer.items("runs")]


class _Program:
    """Functions of this program, and the runs whose code calls them."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions = functions
        self._lines: Dict[str, Connector] = {}  # by run; each leaves by itself when the run has ended

    def serve(self, client: Client, info: AgentInfo) -> None:
        """Has a run's code call them from now on, unless it does already."""
        self._lines = {run: line for run, line in self._lines.items() if line.connects}
        if not self.functions or info.status == "ended" or info.id in self._lines:
            return
        line = Connector(client._endpoint, routes.connect_agent(info.id), self.functions, current_loop())
        try:
            settled(line.ready)
        except ConflictError:
            return  # it has ended already
        self._lines[info.id] = line

    def must_have(self, info: AgentInfo) -> None:
        """Raises a ValueError when the code of a run calls functions of a program that are not here."""
        missing = [name for name in info.functions if name not in self.functions]
        if missing:
            raise ValueError(
                f"the code of {info.id} calls functions of a program that are not here: {', '.join(missing)}. "
                f"Give them: Agent(tools=[…]).get({info.id!r})"
            )


class AgentRun:
    """The run of an agent.

    Attributes:
        id: its id.
        info: an `AgentInfo`, as it was last heard of.
    """

    def __init__(self, client: Client, info: AgentInfo, program: Optional[_Program] = None) -> None:
        self._client = client
        self.id = info.id
        self.info = info
        self._program = program or _Program({})

    @property
    def answer(self) -> Optional[str]:
        """The final answer; None without one."""
        return self.info.answer

    @property
    def reason(self) -> Optional[str]:
        """Why the run ended: "answer", "max_turns", "stuck", …; None while it goes on."""
        return self.info.reason

    @property
    def sandbox_id(self) -> Optional[str]:
        """The sandbox that it works in."""
        return self.info.sandbox_id

    def events(self, after: int = 0) -> Iterator[AgentEvent]:
        """What happens in the run, until it ends. A broken connection is taken up again where it broke.

        Args:
            after: only events with a higher number, and those without one that happen from now on.
        """
        request = routes.agent_events(self.id, after)
        for event in self._client._stay_on(request, AgentEvent.from_wire, lambda event: event.type == "ended"):
            if event.type == "ended":
                self.info = AgentInfo.from_wire(event.data["run"])
            yield event

    def wait(self, on_event: Optional[Callable[[AgentEvent], Any]] = None) -> Optional[str]:
        """Waits for the end and returns the answer, None without one."""
        if on_event is not None:
            check.callback("on_event", on_event)
        for event in self.events():
            if on_event is not None:
                on_event(event)
        return self.info.answer

    def transcript(self) -> List[AgentEvent]:
        """All that is written of the run so far."""
        answer = self._client._send(routes.agent_transcript(self.id))
        return [AgentEvent.from_wire("", body) for body in answer.items("events")]

    def replay(
        self,
        *,
        keep: Optional[str] = None,
        secrets: Any = None,
        sandbox_id: Optional[str] = None,
        follows: Optional[str] = None,
        on_event: Optional[Callable[[AgentEvent], Any]] = None,
    ) -> "AgentRun":
        """Runs the cells of this run again in a new sandbox, with its replies and no model, and waits for the end. Compare the
        `digest` of the "outcome" events: it is the same where the same happened, times aside. Functions of its agent are
        called again.

        Args:
            keep: what becomes of the sandbox at the end; "kill" when left out.
            secrets: as for `Agent`; needed when the run had some by value, which is not stored.
            sandbox_id: for a run that worked in a sandbox of yours, such as an analyst's: one in which its files are again.
            follows: for a run that follows another one: the replay of that one.
            on_event: called with each `AgentEvent`.

        Raises:
            BadRequestError: the values of its secrets are missing, or its sandbox, or what it follows; `field` says what.
            ValueError: its code calls functions of a program, which its agent here has not.
        """
        return self._again(routes.replay_agent(self.id, keep, secrets, sandbox_id, follows), on_event)

    def _again(self, request: Request, on_event: Optional[Callable[[AgentEvent], Any]]) -> "AgentRun":
        """Starts another run of the same kind, whose code calls the same functions, and waits for its end."""
        self._program.must_have(self.info)
        run = AgentRun(self._client, AgentInfo.from_wire((self._client._send(request)).object()), self._program)
        self._program.serve(self._client, run.info)
        run.wait(on_event)
        return run

    def fork(
        self,
        at: int,
        *,
        task: Optional[str] = None,
        model: Optional[str] = None,
        base_url: Optional[str] = None,
        model_key: Optional[str] = None,
        instructions: Optional[str] = None,
        vision: Optional[bool] = None,
        keep: str = "kill",
        limits: Optional[Dict[str, float]] = None,
        price: Optional[Dict[str, float]] = None,
        secrets: Any = None,
        metadata: Optional[Dict[str, str]] = None,
        on_event: Optional[Callable[[AgentEvent], Any]] = None,
    ) -> "AgentRun":
        """Goes on from a turn of this run in another way, as a run of its own, and waits for the end.

        The cells before that turn run again in a new sandbox, with the replies of that time, which cost nothing. The event
        "forked" names those of which something else came. What is left out is as in this run. Functions of its agent are called
        again.

        Args:
            at: the turn whose reply is to be another one, from 1.
            task: told to the model before that turn.
            model, base_url, model_key, instructions, vision, keep, limits, price, secrets: as for `Agent`. The turns
                before count for the limit ``max_turns``. `secrets` are needed when the run had some by value, `base_url`
                or `model` when it had a `base_url`.
            metadata: labels of your own.
            on_event: called with each `AgentEvent`.

        Raises:
            BadRequestError: this run has no such turn, or something that is needed is missing; `field` says what.
            ValueError: its code calls functions of a program, which its agent here has not.
        """
        options = {
            "model": model,
            "base_url": base_url,
            "instructions": instructions,
            "vision": None if vision is None else check.flag("vision", vision),
            "keep": check.text("keep", keep),
            "limits": limits,
            "price": price,
            "secrets": None if secrets is None else check.mapping("secrets", secrets),
        }
        return self._again(routes.fork_agent(self.id, at, task, metadata, model_key, options), on_event)

    def refresh(self) -> AgentInfo:
        """Brings `info` up to date."""
        self.info = AgentInfo.from_wire((self._client._send(routes.get_agent(self.id))).object())
        return self.info

    def cancel(self) -> None:
        """Ends the run; returns when it has ended."""
        self.info = AgentInfo.from_wire((self._client._send(routes.cancel_agent(self.id))).object())

    def delete(self) -> None:
        """Removes a run that has ended, and its transcript.

        Raises:
            ConflictError: it has not ended.
        """
        self._client._send(routes.delete_agent(self.id))

    def figure(self, file: str) -> bytes:
        """A picture that a cell drew, by the name in its "outcome" event."""
        return (self._client._send(routes.agent_figure(self.id, file))).body

    def notebook(self) -> bytes:
        """The run, and those that it follows, as a Jupyter notebook, which does it again beside the files."""
        return (self._client._send(routes.agent_notebook(self.id))).body

    def report(self) -> str:
        """The run, and those that it follows, as one page of HTML that needs nothing beside it."""
        return (self._client._send(routes.agent_report(self.id))).body.decode()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r}, {self.info.reason or self.info.status})"


def _contents(files: Optional[Files]) -> Dict[str, bytes]:
    if files is None:
        return {}
    if isinstance(files, (str, bytes)):
        raise TypeError("files must be a list of paths, or a dict of names to contents, not one string")
    if isinstance(files, Mapping):
        return {name: data.encode() if isinstance(data, str) else bytes(data) for name, data in files.items()}
    contents = {}
    for path in files:
        with open(path, "rb") as file:
            contents[str(path).rpartition("/")[2]] = file.read()
    return contents
