"""SandboxAgent in our sandboxes: runs against a scripted model, and each part of the session that the SDK asks for."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pandastack
import pytest
from agents import OpenAIResponsesModel, RunConfig, Runner
from agents.run_state import RunState
from agents.sandbox import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    Group,
    LocalSnapshotSpec,
    Manifest,
    SandboxAgent,
    SandboxPathGrant,
    SandboxRunConfig,
    User,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.capabilities import Capabilities
from agents.sandbox.entries import Dir, File, InContainerMountStrategy, MountpointMountPattern, S3Mount
from agents.sandbox.errors import InvalidManifestPathError, MountConfigError, PtySessionNotFoundError, WorkspaceStartError
from agents.sandbox.sandboxes.unix_local import UnixLocalSandboxClient
from agents.sandbox.session import SandboxSession
from pandastack.integrations import Figure
from pandastack.integrations.openai_agents_sandbox import (
    PandastackSandboxClient,
    PandastackSandboxClientOptions,
    PandastackSandboxSession,
    Python,
)
from scripted_model import Script, ScriptedModel

DRAW = "import matplotlib.pyplot as plt\nplt.plot([1, 4, 9]); plt.show()\nx = 41"


def agent(model: ScriptedModel, **more: Any) -> SandboxAgent[Any]:
    client = openai.AsyncOpenAI(base_url=model.base_url, api_key="scripted")
    return SandboxAgent(name="Worker", model=OpenAIResponsesModel("gpt-4o", client), **more)


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def shell(cmd: str, **more: Any) -> dict[str, Any]:
    return call("exec_command", {"cmd": cmd, "yield_time_ms": 30_000, **more})


def python(code: str) -> dict[str, Any]:
    return call("run_python", {"code": code})


def inner(session: Any) -> PandastackSandboxSession:
    assert isinstance(session._inner, PandastackSandboxSession)
    return session._inner


@asynccontextmanager
async def live(client: PandastackSandboxClient | None = None, **given: Any) -> AsyncIterator[SandboxSession]:
    async with await (client or PandastackSandboxClient()).create(**given) as session:
        yield session


def with_session(work: Callable[[SandboxSession], Awaitable[None]], **given: Any) -> None:
    async def main() -> str:
        async with live(**given) as session:
            await work(session)
        return inner(session).sandbox.id

    assert status(asyncio.run(main())) != "running"


def status(id: str) -> str:
    try:
        return pandastack.Sandbox.get(id).status
    except pandastack.NotFoundError:
        return "gone"


def test_a_run_makes_a_sandbox_and_ends_it() -> None:
    options = PandastackSandboxClientOptions(metadata={"of": "a run"})
    script = Script([{"start": "go", "turns": [
        {"call": [shell("cat hello.txt; id -un; pwd; echo $MODE")]},
        {"expect": {"tool": r"code 0[\s\S]*hello\nroot\n/workspace\nfast"}, "call": [shell("echo to stderr >&2; exit 3")]},
        {"expect": {"tool": r"code 3[\s\S]*to stderr"}, "say": "Done."},
    ]}])
    manifest = Manifest(entries={"hello.txt": File(content=b"hello\n")}, environment={"value": {"MODE": "fast"}})
    with ScriptedModel(script) as model:
        config = SandboxRunConfig(client=PandastackSandboxClient(), options=options, manifest=manifest)
        done = asyncio.run(Runner.run(agent(model), "go", run_config=RunConfig(sandbox=config)))
    assert done.final_output == "Done." and model.refused == []
    assert pandastack.Sandbox.list(metadata={"of": "a run"}, status="running") == []


def test_a_model_types_into_programs_and_comes_back_to_them() -> None:
    number = r"session ID (\d+)"
    script = Script([{"start": "go", "turns": [
        {"call": [call("exec_command", {"cmd": "read -p 'who? ' name; echo hello $name; exec sleep 3600", "tty": True, "shell": "bash", "yield_time_ms": 3000})]},
        {"expect": {"tool": r"session ID \d+[\s\S]*who\?"}, "read": {"pid": number}, "call": [call("write_stdin", {"session_id": "{pid}", "chars": "ada\n"})]},
        {"expect": {"tool": "hello ada"}, "read": {"pid": number}, "call": [call("write_stdin", {"session_id": "{pid}", "chars": "\u0003", "yield_time_ms": 30_000})]},
        {"expect": {"tool": r"^(?![\s\S]*who\?)[\s\S]*code 1\d\d"}, "call": [call("exec_command", {"cmd": "echo begun; cat /dev/zero >/dev/null", "yield_time_ms": 3000})]},
        {"expect": {"tool": "begun"}, "read": {"pid": number}, "call": [call("write_stdin", {"session_id": "{pid}", "chars": "x"})]},
        {"expect": {"tool": "stdin is not available"}, "call": [call("write_stdin", {"session_id": 9, "chars": ""})]},
        {"expect": {"tool": "PTY session not found: 9"}, "say": "Done."},
    ]}])

    async def work(session: SandboxSession) -> None:
        with ScriptedModel(script) as model:
            config = RunConfig(sandbox=SandboxRunConfig(session=session))
            assert (await Runner.run(agent(model), "go", run_config=config)).final_output == "Done."
        assert model.refused == []
        await session.pty_terminate_all()
        assert (await session.exec("pgrep cat")).exit_code == 1

    with_session(work)


def test_what_programs_write_is_bounded_and_whole_where_it_is_asked_for() -> None:
    async def work(session: SandboxSession) -> None:
        flood = await session.pty_exec_start("seq 1 100000; echo; echo the end", yield_time_s=30)
        assert flood.exit_code == 0 and len(flood.output) < 32_000
        assert flood.output.startswith(b"1\n2\n") and b"bytes dropped" in flood.output and flood.output.endswith(b"the end\n")
        cut = await session.pty_exec_start("seq 1 1000", yield_time_s=30, max_output_tokens=50)
        assert cut.original_token_count and len(cut.output) < 1000
        raw = await session.exec("head -c 300000 /dev/zero | tr '\\0' '\\377'; printf '\\376' >&2; exit 7")
        assert (raw.stdout, raw.stderr, raw.exit_code) == (b"\xff" * 300_000, b"\xfe", 7)
        numbers = (await session.exec("seq", "1", "50000", shell=False)).stdout.split()
        assert numbers[0] == b"1" and numbers[-1] == b"50000" and len(numbers) == 50_000

    with_session(work)


def test_deadlines_and_cancelled_callers_end_commands() -> None:
    async def work(session: SandboxSession) -> None:
        with pytest.raises(ExecTimeoutError) as late:
            await session.exec("echo begun; exec sleep 4243", timeout=1)
        assert late.value.context["stdout"] == "begun\n"
        task = asyncio.create_task(session.exec("touch begun; exec sleep 4243"))
        while not (await session.exec("test -e begun")).ok():
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await session.exec("pgrep -f '[s]leep 4243'")).stdout == b""
        with pytest.raises(ExecTransportError, match="there is no folder"):
            await session.exec("rm -rf /workspace")
            await session.exec("true")

    with_session(work)


def test_files() -> None:
    async def work(session: SandboxSession) -> None:
        await session.write(Path("a/b.bin"), io.BytesIO(b"\x00\xff" * 1000))
        assert (await session.read(Path("/workspace/a/b.bin"))).read() == b"\x00\xff" * 1000
        assert await session.read_bounded(Path("a/b.bin"), max_bytes=3) == b"\x00\xff\x00"
        await session.write(Path("empty"), io.BytesIO())
        assert await session.read_bounded(Path("empty"), max_bytes=3) == b""
        assert [Path(entry.path).name for entry in await session.ls("a")] == ["b.bin"]
        await session.mkdir("c/d", parents=True)
        await session.rm("a", recursive=True)
        with pytest.raises(WorkspaceReadNotFoundError, match="a/b.bin"):
            await session.read(Path("a/b.bin"))
        await session.exec("ln -s /etc/passwd out; ln -s /etc outside")
        for path in ("out", "outside/passwd"):
            with pytest.raises(InvalidManifestPathError):
                await session.read(Path(path))
        with pytest.raises(WorkspaceArchiveWriteError):
            await session.write(Path("c/d"), io.BytesIO(b"over a folder"))

    with_session(work)


def test_users_of_the_manifest() -> None:
    manifest = Manifest(
        entries={"shared": Dir(group=Group(name="staff2", users=[]), permissions={"owner": 7, "group": 7, "other": 0})},  # type: ignore[arg-type]
        groups=[Group(name="staff2", users=[User(name="ada")])],
    )

    async def work(session: SandboxSession) -> None:
        await session.write(Path("shared/hers"), io.BytesIO(b"x"), user="ada")
        assert (await session.exec("stat -c %U shared/hers; id -un", user="ada")).stdout == b"ada\nada\n"
        assert (await session.read(Path("shared/hers"), user="ada")).read() == b"x"
        await session.exec("echo secret >shared/root; chmod 600 shared/root")
        with pytest.raises(WorkspaceArchiveWriteError, match="shared/root") as refused:
            await session.write(Path("shared/root"), io.BytesIO(b"x"), user="ada")
        assert "Permission denied" in str(refused.value.context["reason"])

    with_session(work, manifest=manifest)


def test_ports_are_reached_by_a_signed_address() -> None:
    async def work(session: SandboxSession) -> None:
        await session.exec("echo from inside >index.html")
        await session.pty_exec_start("exec python3 -m http.server 8000", yield_time_s=0.25)
        at = await session.resolve_exposed_port(8000)
        while 8000 not in await inner(session).sandbox.ports():
            await asyncio.sleep(0.05)
        url = at.url_for("http")
        # Names below localhost are not looked up here; browsers and curl take them for this machine.
        request = urllib.request.Request(url.replace(at.host, "127.0.0.1"), headers={"Host": f"{at.host}:{at.port}"})
        assert (await asyncio.to_thread(urllib.request.urlopen, request)).read() == b"from inside\n"
        with pytest.raises(ExposedPortUnavailableError, match="8001 is not configured"):
            await session.resolve_exposed_port(8001)

    with_session(work, options=PandastackSandboxClientOptions(exposed_ports=(8000,)))


def resumed(options: PandastackSandboxClientOptions, folder: Path, back: Callable[[SandboxSession, str], Awaitable[None]]) -> None:
    """A session that is closed and, from its state as JSON, taken up again by another client."""
    manifest = Manifest(entries={"kept.txt": File(content=b"1\n"), "passing.txt": File(content=b"2\n", ephemeral=True)})
    if options.workspace_persistence == "snapshot":
        manifest = Manifest(entries={"kept.txt": File(content=b"1\n")})

    async def main() -> None:
        client = PandastackSandboxClient()
        session = await client.create(snapshot=LocalSnapshotSpec(base_path=folder), manifest=manifest, options=options)
        async with session:
            await session.exec("echo changed >>kept.txt; echo new >new.txt; ln -s /usr/bin/python3 link; echo changed >passing.txt")
            await inner(session).sandbox.run_code("x = 41")
            first = inner(session).state.sandbox_id
        await client.delete(session)
        payload = json.loads(json.dumps(client.serialize_session_state(session.state)))
        other = PandastackSandboxClient()
        again = await other.resume(other.deserialize_session_state(payload))
        async with again:
            assert (await again.exec("cat kept.txt new.txt; readlink link")).stdout == b"1\nchanged\nnew\n/usr/bin/python3\n"
            await back(again, first)
        await other.delete(again)
        if options.on_exit == "hibernate":
            await inner(again).sandbox.kill()

    asyncio.run(main())


def test_a_workspace_comes_back_from_its_files(tmp_path: Path) -> None:
    async def back(session: SandboxSession, first: str) -> None:
        assert inner(session).sandbox.id != first and status(first) != "running"
        assert (await session.exec("cat passing.txt")).stdout == b"2\n", "what is ephemeral is made anew"

    resumed(PandastackSandboxClientOptions(), tmp_path, back)
    with tarfile.open(next(tmp_path.glob("*.tar"))) as kept:
        assert "./kept.txt" in kept.getnames() and "./passing.txt" not in kept.getnames()


def test_a_sandbox_sleeps_between_its_sessions(tmp_path: Path) -> None:
    async def back(session: SandboxSession, first: str) -> None:
        assert inner(session).sandbox.id == first
        assert (await inner(session).sandbox.run_code("x + 1")).text == "42"

    resumed(PandastackSandboxClientOptions(on_exit="hibernate"), tmp_path, back)


def test_a_whole_sandbox_comes_back_from_a_snapshot(tmp_path: Path) -> None:
    async def back(session: SandboxSession, first: str) -> None:
        assert inner(session).sandbox.id != first
        assert (await inner(session).sandbox.run_code("x + 1")).text == "42"

    def kept() -> list[str]:
        return [one.id for one in pandastack.Client().snapshots.list() if (one.name or "").startswith("openai-agents ")]

    resumed(PandastackSandboxClientOptions(workspace_persistence="snapshot"), tmp_path, back)
    left = kept()
    assert len(left) == 1, "the one before it is removed"
    pandastack.Client().snapshots.delete(left[0])


def test_a_run_goes_on_from_its_state(tmp_path: Path) -> None:
    """Interrupted for an approval, written down, and taken up again in another sandbox."""
    script = Script([{"start": "go", "turns": [
        {"call": [shell("echo begun >file.txt")]},
        {"call": [call("publish", {})]},
        {"expect": {"tool": "published"}, "call": [shell("cat file.txt")]},
        {"expect": {"tool": "begun"}, "say": "Done."},
    ]}])
    from agents import function_tool

    @function_tool(needs_approval=True)
    def publish() -> str:
        """Publishes."""
        return "published"

    async def main() -> None:
        with ScriptedModel(script) as model:
            worker = agent(model, tools=[publish])
            sandbox = SandboxRunConfig(client=PandastackSandboxClient(), snapshot=LocalSnapshotSpec(base_path=tmp_path))
            config = RunConfig(sandbox=sandbox)
            first = await Runner.run(worker, "go", run_config=config)
            (asked,) = first.interruptions
            state = await RunState.from_json(worker, json.loads(json.dumps(first.to_state().to_json())))
            state.approve(state.get_interruptions()[0])
            assert asked.raw_item is not None
            assert (await Runner.run(worker, state, run_config=config)).final_output == "Done."
        assert model.refused == []

    asyncio.run(main())


def test_python_beside_the_shell() -> None:
    drawn: list[Figure] = []
    script = Script([{"start": "go", "turns": [
        {"expect": {"tools": ["run_python", "exec_command"]}, "call": [python("1 / 0")]},
        {"expect": {"tool": "ZeroDivisionError"}, "call": [python(DRAW)]},
        {"expect": {"tool": "figure 1: PNG", "image": True}, "call": [python("open('/workspace/x', 'w').write(str(x + 1))")]},
        {"call": [shell("cat x")]},
        {"expect": {"tool": "42"}, "say": "Done."},
    ]}])

    async def work(session: SandboxSession) -> None:
        with ScriptedModel(script) as model:
            worker = agent(model, capabilities=[*Capabilities.default(), Python(show_figures=True, on_figure=drawn.append)])
            config = RunConfig(sandbox=SandboxRunConfig(session=session))
            assert (await Runner.run(worker, "go", run_config=config)).final_output == "Done."
        assert model.refused == [] and drawn[0].data[:4] == b"\x89PNG"

    with_session(work)
    with pytest.raises(TypeError, match="needs a session of PandastackSandboxClient"):
        Python().tools()


def test_a_sandbox_that_has_ended_is_told_to_the_model_and_raised_to_the_program() -> None:
    async def work(session: SandboxSession) -> None:
        assert await session.running()
        await inner(session).sandbox.kill()
        assert not await session.running()
        told = await session.pty_exec_start("true")
        assert b"its sandbox has ended" in told.output and (told.process_id, told.exit_code) == (None, 1)
        with pytest.raises(ExecTransportError, match="it was killed") as gone:
            await session.exec("true")
        assert gone.value.retryable is False and isinstance(gone.value.cause, pandastack.NotFoundError)
        with ScriptedModel(Script([])) as model:
            with pytest.raises(WorkspaceStartError, match="it was killed"):
                await Runner.run(agent(model), "go", run_config=RunConfig(sandbox=SandboxRunConfig(session=session)))

    with_session(work)


def test_what_there_is_no_place_for_is_refused_before_a_sandbox_is_made() -> None:
    mount = S3Mount(bucket="b", mount_strategy=InContainerMountStrategy(pattern=MountpointMountPattern()))
    client = PandastackSandboxClient()
    options = PandastackSandboxClientOptions(metadata={"of": "refused"})
    for manifest, error, words in (
        (Manifest(entries={"data": mount}), MountConfigError, "mount no other storage"),
        (Manifest(extra_path_grants=(SandboxPathGrant(path="/data", host_path="/srv"),)), ValueError, "LocalDir"),
    ):
        with pytest.raises(error, match=words):
            asyncio.run(client.create(manifest=manifest, options=options))
    assert pandastack.Sandbox.list(metadata={"of": "refused"}) == []
    theirs = asyncio.run(UnixLocalSandboxClient().create(options=None))
    with pytest.raises(TypeError, match="another kind of sandbox"):
        asyncio.run(client.resume(theirs.state))
    with pytest.raises(TypeError, match="not in one of our sandboxes"):
        asyncio.run(client.delete(theirs))


def test_a_session_number_that_is_none() -> None:
    async def work(session: SandboxSession) -> None:
        with pytest.raises(PtySessionNotFoundError):
            await session.pty_write_stdin(session_id=1, chars="x")

    with_session(work)
