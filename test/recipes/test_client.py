"""The SDK against the real server, both surfaces: streams, processes, broken connections."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any, List

import pytest
from daemon import Daemon
from pandastack import AsyncSandbox, CodeContext, CommandError, ConflictError, NotFoundError, Sandbox, SandboxTimeout


def test_output_comes_while_the_cell_runs(ctx: CodeContext, shared_sandbox: Sandbox) -> None:
    """The cell waits for a file that is made when its first line has arrived."""
    def on_stdout(text: str) -> None:
        if "first" in text:
            shared_sandbox.filesystem.write("/workspace/go", "")

    ex = ctx.run_code(
        "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('/workspace/go'): time.sleep(0.02)\n'went on'",
        timeout_seconds=30, on_stdout=on_stdout,
    )
    assert (ex.end, ex.text) == ("ok", "'went on'")
    shared_sandbox.filesystem.remove("/workspace/go")


def test_waiting_streaming_and_attaching_give_the_same(ctx: CodeContext) -> None:
    code = (
        "import sys\nprint('o ü')\nprint('e', file=sys.stderr)\n"
        "import matplotlib.pyplot as plt; plt.plot([1]); plt.show()\nprint('after')\n{'a': 1}"
    )
    waited = ctx.run_code(code)
    streamed = ctx.run_code(code, on_stdout=lambda _: None)
    attached = ctx.attach(streamed.execution_id).wait()

    def same(ex: Any) -> Any:
        return ex.stdout, ex.stderr, ex.text, [sorted(r.data) for r in ex.results], ex.end, ex.exit_code

    assert same(waited) == same(streamed) == same(attached)
    assert attached.execution_id == streamed.execution_id and attached.execution_count == streamed.execution_count


def test_events_are_numbered_without_a_gap(ctx: CodeContext) -> None:
    events = list(ctx.stream("for i in range(5): print(i, flush=True)"))
    assert [e.seq for e in events] == list(range(1, len(events) + 1))
    assert events[0].type == "started" and events[-1].type == "end"
    execution = events[0].execution_id
    assert [e.seq for e in ctx.attach(execution, after=events[-2].seq)] == [events[-1].seq]


def test_the_same_id_runs_once(ctx: CodeContext) -> None:
    ctx.run_code("n = 0")
    first = ctx.run_code("n += 1; n", execution_id="once")
    again = ctx.run_code("n += 1; n", execution_id="once")
    assert first.text == again.text == "1" == ctx.run_code("n").text
    with pytest.raises(ConflictError):
        ctx.run_code("n", execution_id="once")
    with pytest.raises(NotFoundError):
        ctx.attach("never").wait()


class Relay:
    """A relay in front of the daemon that can break every connection."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._pairs: List[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                inner, _ = self._listener.accept()
            except OSError:
                return
            outer = socket.create_connection(("127.0.0.1", self._target))
            self._pairs += [inner, outer]
            for source, sink in ((inner, outer), (outer, inner)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def cut(self) -> None:
        pairs, self._pairs = self._pairs, []
        for end in pairs:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self) -> None:
        self._listener.close()
        self.cut()


@pytest.mark.parametrize("streaming", [False, True])
def test_a_connection_that_breaks_in_the_middle_loses_nothing(daemon: Daemon, sandbox: Sandbox, streaming: bool) -> None:
    relay = Relay(daemon.port)
    try:
        behind = Sandbox.get(sandbox.id, api_url=relay.url, api_key=daemon.key).create_code_context()
        seen: List[str] = []
        got: List[Any] = []
        code = (
            "import os, time\nopen('/workspace/ran', 'a').write('x')\nprint('early', flush=True)\n"
            "while not os.path.exists('/workspace/go'): time.sleep(0.02)\nprint('late')\n'end'"
        )
        options: Any = {"on_stdout": seen.append} if streaming else {}
        caller = threading.Thread(target=lambda: got.append(behind.run_code(code, timeout_seconds=60, **options)))
        caller.start()
        while not sandbox.filesystem.exists("/workspace/ran"):
            pass
        relay.cut()
        relay.cut()
        sandbox.filesystem.write("/workspace/go", "")
        caller.join(60)
        assert got and (got[0].stdout, got[0].text) == ("early\nlate\n", "'end'")
        assert sandbox.filesystem.read("/workspace/ran") == b"x", "it ran once"
        assert not streaming or "".join(seen) == "early\nlate\n"
    finally:
        relay.close()


def test_commands(shared_sandbox: Sandbox) -> None:
    result = shared_sandbox.exec("pwd; whoami; echo warn >&2", envs={"A": "ü"}, check=True)
    assert (result.stdout, result.stderr, result.exit_code) == ("/workspace\nroot\n", "warn\n", 0)
    assert shared_sandbox.exec(["printf", "%s|", "a b", "$HOME", "*"]).stdout == "a b|$HOME|*|"
    assert shared_sandbox.exec("cat", stdin="ü\n").stdout == "ü\n"
    assert shared_sandbox.exec("kill -9 $$").exit_code == 137
    with pytest.raises(CommandError) as failed:
        shared_sandbox.exec("echo out; echo err >&2; exit 7", check=True)
    assert (failed.value.exit_code, failed.value.stdout, failed.value.stderr) == (7, "out\n", "err\n")


def test_a_command_past_its_deadline_raises_with_its_output(shared_sandbox: Sandbox) -> None:
    for options in ({}, {"on_stdout": lambda _: None}):
        with pytest.raises(SandboxTimeout) as late:
            shared_sandbox.commands.run("echo so far; echo err >&2; sleep 60", timeout_seconds=1, **options)
        assert (late.value.stdout, late.value.stderr) == ("so far\n", "err\n")


def test_a_process_in_the_background(shared_sandbox: Sandbox) -> None:
    p = shared_sandbox.commands.run("echo ready; read line; echo got $line; exit 4", background=True, stdin=True)
    events = iter(p.stream())
    while next(events).type != "stdout":
        pass
    assert p.info().running
    p.send_stdin("a line\n")
    result = p.wait()
    assert (result.stdout, result.exit_code) == ("ready\ngot a line\n", 4)
    again = shared_sandbox.commands.connect(p.pid)
    assert again.wait().stdout == result.stdout, "its output can be read again"
    assert p.pid in [i.pid for i in shared_sandbox.commands.list()]


def test_ending_a_process(shared_sandbox: Sandbox) -> None:
    p = shared_sandbox.commands.run("sleep 600 & sleep 600", background=True)
    with pytest.raises(SandboxTimeout, match="goes on"):
        p.wait(0.2)
    p.signal("TERM")
    assert p.wait().exit_code == 143
    q = shared_sandbox.commands.run(["sleep", "600"], background=True)
    q.kill()
    assert q.wait().exit_code == 137
    q.kill()
    assert shared_sandbox.commands.kill(999_999) is False


def test_the_asynchronous_surface(daemon: Daemon, tmp_path: Path) -> None:
    async def session() -> None:
        sandbox = await AsyncSandbox.create("code-interpreter", ttl_seconds=300, api_url=daemon.url, api_key=daemon.key)
        async with sandbox:
            contexts = await asyncio.gather(*(sandbox.create_code_context() for _ in range(3)))
            done = await asyncio.gather(*(c.run_code(f"import time; time.sleep(0.3); {i}") for i, c in enumerate(contexts)))
            assert [ex.text for ex in done] == ["0", "1", "2"]
            seen: List[str] = []

            async def on_stdout(text: str) -> None:
                seen.append(text)

            await contexts[0].run_code("print('ü')", on_stdout=on_stdout)
            assert seen == ["ü\n"]
            async with contexts[1].stream("1+1") as stream:
                assert [e.type async for e in stream] == ["started", "result", "end"]
            (tmp_path / "in").write_bytes(bytes(range(256)) * 10_000)
            await sandbox.filesystem.upload(tmp_path / "in", "/workspace/d/in")
            await sandbox.filesystem.download("/workspace/d/in", tmp_path / "out")
            assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()
            assert "/workspace/d/in" in [f.path async for f in sandbox.filesystem.walk("/workspace")]
            assert (await sandbox.exec("exit 3")).exit_code == 3
            process = await sandbox.commands.run("echo hi", background=True)
            assert (await process.wait()).stdout == "hi\n"
            name = sandbox.id
        with pytest.raises(NotFoundError):
            await (await AsyncSandbox.get(name, api_url=daemon.url, api_key=daemon.key)).exec("true")

    asyncio.run(session())


def test_sandboxes_are_found_by_metadata(daemon: Daemon, sandbox: Sandbox) -> None:
    where: Any = {"api_url": daemon.url, "api_key": daemon.key}
    with Sandbox.create("code-interpreter", ttl_seconds=60, metadata={"run": "42", "who": "ü"}, **where) as mine:
        assert [s.id for s in Sandbox.list({"run": "42"}, **where)] == [mine.id]
        assert {mine.id, sandbox.id} <= {s.id for s in Sandbox.list(status="running", **where)}
        assert len(Sandbox.list(limit=1, **where)) == 1
        assert Sandbox.get(mine.id, **where).metadata == {"run": "42", "who": "ü"}
