"""Terminals: from a person's, through the command line, to a program in a sandbox, and over every kind of break."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from daemon import BIN, Daemon
from pandastack import AsyncSandbox, ConflictError, NotFoundError, Sandbox, SandboxTimeout
from test_processes import eventually
from test_restart import run_in_thread


class Tmux:
    """A person's terminal: what is typed into it, and what can be seen."""

    def __init__(self, env: dict[str, str], rows: int = 30, cols: int = 100) -> None:
        self.name = f"pandastack-{uuid.uuid4().hex[:8]}"
        self.env = {**env, "PATH": f"{BIN.parent}:{os.environ['PATH']}", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(cols), "-y", str(rows), "sh")
        self.see("^[#$]")
        self.type("PS1='he''re> '; clear")
        self.see("^here>")

    def tmux(self, *args: str) -> str:
        return subprocess.run(["tmux", "-L", self.name, *args], env=self.env, check=True, capture_output=True, timeout=30).stdout.decode()

    def keys(self, *keys: str) -> None:
        """Presses keys by their names, such as "C-p"."""
        self.tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", text)
        self.keys("Enter")

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def see(self, pattern: str) -> str:
        """Waits until the screen has this."""
        deadline = time.monotonic() + 30
        while not re.search(pattern, screen := self.screen(), re.MULTILINE):
            assert time.monotonic() < deadline, f"no {pattern!r} on the screen:\n{screen}"
            time.sleep(0.05)
        return screen

    def resize(self, rows: int, cols: int) -> None:
        self.tmux("resize-window", "-x", str(cols), "-y", str(rows))

    def close(self) -> None:
        self.tmux("kill-server")


DETACHED = r"(?s)^detached: process \d+ goes on. Back to it: pandastack.*^here>"  # and the shell outside is back


@pytest.fixture
def tmux(daemon: Daemon) -> Iterator[Tmux]:
    t = Tmux(daemon.env)
    yield t
    t.close()


FULL_SCREEN = """
import curses
def main(screen):
    typed = ""
    while True:
        rows, cols = screen.getmaxyx()
        screen.erase()
        screen.addstr(0, 0, f"{rows} rows, {cols} columns")
        screen.addstr(rows - 2, 0, f"typed: {typed}")
        screen.refresh()
        key = screen.getch()
        if key == curses.KEY_RESIZE:
            curses.update_lines_cols()
        elif key == ord("q"):
            return
        elif 32 <= key < 127:
            typed += chr(key)
curses.wrapper(main)
"""


def test_attach_full_screen_resize_detach_and_attach_again(sandbox: Sandbox, tmux: Tmux) -> None:
    sandbox.filesystem.write("/workspace/full.py", FULL_SCREEN)
    before = tmux.tmux("display-message", "-p", "#{alternate_on}")
    tmux.type("T=$(stty -g); pandastack sandbox attach " + sandbox.id)
    tmux.see(r"^process \d+ of " + sandbox.id + r"; detach with ctrl-p ctrl-q")
    tmux.see(r"^root@\S+:/workspace#")
    tmux.type("MARK=kept; stty size; echo 'said at' the first visit")
    tmux.see(r"^30 100$")
    tmux.type("python3 full.py")
    tmux.see("^30 rows, 100 columns")
    tmux.keys("a", "b")
    tmux.see("typed: ab")
    tmux.resize(20, 70)
    tmux.see("^20 rows, 70 columns")
    tmux.keys("C-p", "C-q")
    tmux.see(DETACHED)
    assert tmux.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}").split() == [before.strip(), "1"], "the screen is as it was"
    tmux.type("[ $T = $(stty -g) ] && echo as before")
    tmux.see("^as before$")
    # Somebody else types meanwhile, and the terminal has another size when we come back.
    (shell,) = sandbox.pty.list()
    sandbox.pty.send_stdin(shell.pid, b"c")
    tmux.resize(25, 90)
    tmux.type("clear; pandastack sandbox attach " + sandbox.id)
    tmux.see("^25 rows, 90 columns")
    tmux.see("typed: abc")
    # Nothing has changed when we come back once more: it draws all the same.
    tmux.keys("C-p", "C-q")
    tmux.see(DETACHED)
    tmux.type("clear; pandastack sandbox attach " + sandbox.id)
    tmux.see("^25 rows, 90 columns")
    tmux.see("typed: abc")
    tmux.keys("q")
    tmux.see("said at the first visit"), "what was on the screen before the program"
    # To be drawn again it had another size for a moment, which may last longer than our typing.
    tmux.type("clear; until [ \"$(stty size)\" = '25 90' ]; do sleep 0.1; done; echo $MARK $(stty size) $TERM")
    tmux.see("^kept 25 90 xterm-256color|^kept 25 90 (tmux|screen)-256color")
    # Its own end, and its exit code.
    tmux.type("exit 7")
    tmux.see("^here>")
    tmux.type("clear; echo code $?; [ $T = $(stty -g) ] && echo as before")
    tmux.see("^as before$")
    assert [p.exit_code for p in sandbox.pty.list()] == [7]


def put_vim(sandbox: Sandbox) -> str:
    """Puts this machine's editor into a sandbox, with the libraries that it wants, and gives its command. Templates have none."""
    program = shutil.which("vim.tiny") or shutil.which("vim")
    assert program, "scripts/deps test installs it"
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    libraries = [Path(path) for path in re.findall(r"(/\S+) \(0x", linked)]
    for path in (Path(program), *libraries):
        sandbox.filesystem.upload(path, f"/opt/vim/{path.name}", mode=0o755)
    (loader,) = (path.name for path in libraries if path.name.startswith("ld-linux"))
    return f"/opt/vim/{loader} --library-path /opt/vim /opt/vim/{Path(program).name} -N -u NONE"


def test_vim_resize_detach_and_attach_again(sandbox: Sandbox, tmux: Tmux) -> None:
    def size(rows: int, cols: int) -> None:
        eventually("the terminal keeps its size", lambda: sandbox.pty.list()[0].pty == (rows, cols))

    vim = put_vim(sandbox)
    tmux.type("pandastack sandbox attach " + sandbox.id)
    tmux.see(r"^root@\S+:/workspace#")
    tmux.type(f"clear; {vim} poem")
    tmux.see(r'^"poem" \[New')
    tmux.keys("i")
    tmux.type("the first line")
    tmux.keys("Escape")
    tmux.resize(20, 70)
    size(20, 70)
    tmux.type(":set lines? columns?")
    tmux.see("^ +lines=20")
    tmux.see("^ +columns=70")
    tmux.keys("Enter")
    tmux.keys("C-p", "C-q")
    tmux.see(DETACHED)
    tmux.resize(25, 90)
    tmux.type("clear; pandastack sandbox attach " + sandbox.id)
    tmux.see("^the first line$")
    size(25, 90)
    tmux.type(":set lines? columns?")
    tmux.see("^ +lines=25")
    tmux.see("^ +columns=90")
    tmux.keys("Enter")
    tmux.keys("G", "o")
    tmux.type("the second")
    tmux.keys("Escape")
    tmux.type(":wq")
    tmux.see(r"^root@\S+:/workspace#")
    assert sandbox.filesystem.read_text("/workspace/poem").split("\n") == ["the first line", "", "the second", "", ""]
    tmux.keys("C-p", "C-q")
    tmux.see("^here>")


def test_exec_on_a_terminal(sandbox: Sandbox, tmux: Tmux) -> None:
    exec_ = f"pandastack sandbox exec -it {sandbox.id} "
    tmux.type(exec_ + "-- bash -c 'test -t 0 && stty size; read -p \"name? \" n; echo \"<$n>\"; exit 5'; echo code $?")
    tmux.see("^30 100$")
    tmux.see("^name\\?")
    tmux.type("panda")
    tmux.see("^<panda>$")
    tmux.see("^code 5$")
    # Keys are the program's: Ctrl-C ends what runs in the sandbox and not this side.
    tmux.type("clear; " + exec_ + shlex.quote("trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.1; done") + "; echo code $?")
    tmux.see("^ready$")
    tmux.keys("C-c")
    tmux.see("^caught|caught$")
    tmux.see("^code 9$")
    # A signal to this side ends the command, and gives the terminal back.
    tmux.type("clear; " + exec_ + "'echo here; sleep 8888'; echo code $?; stty -a | grep -o ' icanon'")
    tmux.see("^here$")  # another word than before, which may still be seen
    pids = subprocess.run(["pgrep", "-f", f"exec -it {sandbox.id} echo here; sleep 8888"], capture_output=True, check=True).stdout.split()
    os.kill(int(pids[-1]), 15)
    tmux.see("^code 130$")
    tmux.see("^ icanon$")
    eventually("the command goes on", lambda: not any(p.running for p in sandbox.commands.list()))


def test_top_shows_a_table_that_lives(sandbox: Sandbox, tmux: Tmux) -> None:
    tmux.type("clear; pandastack sandbox top --every 200ms " + sandbox.id)
    tmux.see(r"^ID +TEMPLATE +STATUS +CPU +MEMORY")
    tmux.see(rf"^{sandbox.id} +code-interpreter +running ")
    sandbox.pause()
    tmux.see(rf"^{sandbox.id} +code-interpreter +paused ")
    sandbox.resume()
    tmux.keys("C-c")
    tmux.see("^here>")
    tmux.type("clear; echo code $?")
    tmux.see("^code 0$")


def test_without_a_terminal(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    def cli(*args: str, **options: Any) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run([BIN, "sandbox", *args], env=daemon.env, capture_output=True, timeout=60, **options)

    done = cli("exec", "-i", shared_sandbox.id, "--", "cat", input=b"piped\n")
    assert (done.returncode, done.stdout) == (0, b"piped\n")
    done = cli("exec", "-it", shared_sandbox.id, "bash", input=b"")
    assert done.returncode == 2 and b"leave it out to pipe" in done.stderr
    done = cli("attach", shared_sandbox.id, input=b"")
    assert done.returncode == 2 and b"give a process id" in done.stderr
    # What a terminal had on it can be read, as bytes.
    terminal = shared_sandbox.pty.create("tput setaf 1; echo red; exit 4")
    done = cli("attach", shared_sandbox.id, str(terminal.pid), input=b"")
    assert (done.returncode, done.stdout) == (4, b"\x1b[31mred\r\n")


COUNT = "stty -echo; echo ready; read go; for ((i = 0; i < 8000; i++)); do echo $i; if ((i % 1000 == 0)); then sleep 0.1; fi; done; read go; exit $go"


def test_a_terminal_survives_the_daemon(own_daemon: Daemon) -> None:
    d = own_daemon
    sb = Sandbox.create(template="code-interpreter", ttl_seconds=600, api_url=d.url, api_key=d.key)
    terminal = sb.pty.create(COUNT, rows=10, cols=20)
    pieces: list[bytes] = []
    numbers: list[int] = []

    def follow() -> None:
        for event in terminal:
            numbers.append(event.seq)
            assert event.type != "gap", event
            pieces.append(event.content if event.type == "stdout" else b"")

    t, got = run_in_thread(follow)
    eventually("it does not start", lambda: b"ready\r\n" in b"".join(pieces))
    terminal.send_stdin("\n")
    eventually("no output comes", lambda: b"".join(pieces).count(b"\n") > 500)
    d.kill9()
    d.start()
    eventually("the output is not complete", lambda: got or b"".join(pieces).count(b"\n") == 8001)
    again = sb.pty.connect(terminal.pid)
    again.resize(11, 21)
    assert sb.pty.list()[0].pty == (11, 21)
    again.send_stdin(b"3\n")
    t.join(60)
    assert got == [None] and b"".join(pieces) == b"ready\r\n" + b"".join(b"%d\r\n" % i for i in range(8000))
    assert numbers == sorted(set(numbers)), "an event came twice"
    assert again.wait().exit_code == 3


def test_a_terminal_sleeps_wakes_and_is_copied(daemon: Daemon, sandbox: Sandbox) -> None:
    terminal = sandbox.pty.create("for ((i = 0; ; i++)); do read -p \"$i> \" line; [ \"$line\" = end ] && exit 6; echo \"got $line $(stty size)\"; done", rows=8, cols=40)
    seen = lambda of: b"".join(e.content for e in of.stream() if e.type == "stdout")  # noqa: E731

    def waits(of: Any, text: bytes) -> None:
        said = b""
        for event in of.stream():
            said += event.content if event.type == "stdout" else b""
            if text in said:
                return
        raise AssertionError(f"no {text!r} in {said!r}")

    terminal.send_stdin("one\n")
    waits(terminal, b"got one 8 40")
    sandbox.hibernate()
    terminal.send_stdin("two\n")  # which wakes it
    waits(terminal, b"got two 8 40")
    snapshot = sandbox.snapshot()
    copies = [Sandbox.create(from_snapshot=snapshot, ttl_seconds=600, api_url=daemon.url, api_key=daemon.key), *sandbox.fork(count=1)]
    try:
        for number, copy in enumerate(copies):
            other = copy.pty.connect(terminal.pid)
            other.resize(9, 41 + number)
            other.send_stdin(f"copy {number}\n")
            waits(other, b"got copy %d 9 %d" % (number, 41 + number))
            other.send_stdin("end\n")
            assert other.wait(30).exit_code == 6
            assert b"got one 8 40" in seen(other), "what it had written before the copy"
    finally:
        for copy in copies:
            copy.kill()
    terminal.send_stdin("three\n")
    waits(terminal, b"got three 8 40")
    terminal.kill()
    assert b"copy" not in seen(terminal)


def test_terminals_in_the_sdk(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    sb = shared_sandbox
    data: list[bytes] = []
    terminal = sb.pty.create(on_data=data.append, envs={"PS1": "> "}, user="nobody", cwd="/tmp")
    terminal.send_stdin("id -un; pwd; tty; exit 2\n")
    ended = terminal.wait(30)
    assert ended.exit_code == 2 and "nobody\r\n/tmp\r\n/dev/pts/" in ended.stdout and b"".join(data).decode() == ended.stdout
    with pytest.raises(ConflictError):
        terminal.resize(1, 1)
    terminal = sb.pty.create("sleep 600")
    with pytest.raises(SandboxTimeout):
        terminal.wait(0.3)
    assert sb.pty.kill(terminal.pid) and not sb.pty.kill(999999)
    assert terminal.info().reason == "killed" or terminal.wait().reason == "killed"
    with pytest.raises(ValueError, match="no terminal"):
        sb.pty.connect(sb.commands.run("true", background=True).pid)
    with pytest.raises(NotFoundError):
        sb.pty.connect(999999)

    async def typed() -> bytes:
        sandbox = await AsyncSandbox.get(sb.id, api_url=daemon.url, api_key=daemon.key)
        terminal = await sandbox.pty.create(["cat"])
        await terminal.send_stdin("ü\n\x04")
        return b"".join([piece async for piece in terminal.output()])

    assert asyncio.run(typed()) == "ü\r\nü\r\n".encode()


def test_terminals_over_a_websocket(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    """As published clients speak: bytes as binary messages, the size as text."""

    async def talk() -> tuple[bytes, list[dict[str, Any]]]:
        shown, said = b"", []
        url = f"{daemon.url}/v1/sandboxes/{shared_sandbox.id}/exec/pty?rows=12&cols=34"
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {daemon.key}"}) as session:
            async with session.ws_connect(url) as ws:
                await ws.send_bytes(b"PS1='$ '; stty size\n")
                asked = False
                async for message in ws:
                    if message.type == aiohttp.WSMsgType.TEXT:
                        said.append(json.loads(message.data))
                        continue
                    shown += message.data
                    if not asked and b"12 34\r\n" in shown:
                        asked = True
                        await ws.send_json({"resize": {"rows": 5, "cols": 6}})
                        await ws.send_json({"stdin": "stty size; exit 8\n"})
        return shown, said

    shown, said = asyncio.run(talk())
    assert b"5 6\r\n" in shown, shown
    assert said == [{"exit": 8, "reason": "exited"}]
