"""Commands and processes: how they end, what is kept of them, and that nothing is lost on the way."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from typing import Any

import aiohttp
import pytest
from daemon import BIN, Daemon
from pandastack import CommandError, ConflictError, PandastackError, Sandbox, SandboxTimeout
from test_restart import run_in_thread, wait_for_file


def post(daemon: Daemon, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """What the API itself answers."""
    request = urllib.request.Request(f"{daemon.url}/v1{path}", json.dumps(body).encode(), {
        "Authorization": f"Bearer {daemon.key}", "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def running(sb: Sandbox, command: str) -> int:
    """How many processes have exactly this command line."""
    return int(sb.exec(["pgrep", "-cfx", command]).stdout)


def eventually(what: str, holds: Any) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


# What breaks: client, link, daemon


COUNT = """
import sys, time
for i in range(3000):
    sys.stdout.buffer.write(b"%d \\xe2\\x82\\xac\\n" % i if i % 7 else b"%d \\xff\\xfe\\n" % i)
    sys.stdout.buffer.flush()
    sys.stderr.write("e%d\\n" % i)
    sys.stderr.flush()
    time.sleep(0.002)
sys.exit(int(sys.stdin.readline()))
"""


def test_reattaching_after_the_daemon_was_killed_loses_and_repeats_no_byte(own_daemon: Daemon) -> None:
    d = own_daemon
    sb = Sandbox.create(template="code-interpreter", ttl_seconds=600, api_url=d.url, api_key=d.key)
    process = sb.commands.run(["python3", "-c", COUNT], background=True, stdin=True)
    out: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    numbers: list[int] = []
    exits: list[Any] = []

    def follow() -> None:
        for event in process:
            numbers.append(event.seq)
            assert event.type != "gap", event
            if event.type in out:
                out[event.type].append(event.raw if event.raw is not None else event.text.encode())
            elif event.type == "exit":
                exits.append(event.data)

    t, got = run_in_thread(follow)
    ran = "echo early; echo once >> /workspace/ran; until test -e /workspace/go; do sleep 0.1; done; echo late; exit 5"
    waiting, result = run_in_thread(lambda: sb.exec(ran, timeout_seconds=120))
    wait_for_file(sb, "/workspace/ran")
    for lines in (300, 1500):  # twice in the middle of it
        eventually("no output comes", lambda: b"".join(out["stdout"]).count(b"\n") > lines)
        d.kill9()
        d.start()
    eventually("the output is not complete", lambda: got or b"".join(out["stdout"]).count(b"\n") == 3000)
    assert got == []
    again = sb.commands.connect(process.pid)  # what knows nothing of the one before
    again.send_stdin("9\n", close=True)
    t.join(60)
    assert got == [None] and [x["exit_code"] for x in exits] == [9]
    assert b"".join(out["stdout"]) == b"".join(
        b"%d \xe2\x82\xac\n" % i if i % 7 else b"%d \xff\xfe\n" % i for i in range(3000))
    assert b"".join(out["stderr"]) == b"".join(b"e%d\n" % i for i in range(3000))
    assert numbers == sorted(set(numbers)), "an event came twice"
    sb.filesystem.write("/workspace/go", "")
    waiting.join(60)
    assert (result[0].stdout, result[0].exit_code) == ("early\nlate\n", 5), "who waits for a command gets its result"
    assert sb.filesystem.read("/workspace/ran") == b"once\n", "it ran once"
    # And from any number on, the rest is the same.
    rest = [e for e in again.stream(after=numbers[len(numbers) // 2])]
    assert [e.seq for e in rest] == numbers[len(numbers) // 2 + 1:]


# How they end


def test_a_timeout_kills_grandchildren_and_says_so(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    cmd = "echo so far; sh -c 'sleep 7777 & sleep 7777' & trap 'exit 0' TERM; while :; do sleep 0.1; done"
    with pytest.raises(SandboxTimeout) as e:
        shared_sandbox.exec(cmd, timeout_seconds=1)
    assert e.value.stdout == "so far\n"
    eventually("grandchildren are left", lambda: running(shared_sandbox, "sleep 7777") == 0)
    status, body = post(daemon, f"/sandboxes/{shared_sandbox.id}/exec", {"cmd": cmd, "timeout_seconds": 1})
    assert status == 504 and body["code"] == "timeout" and "all that it had started" in body["error"]
    assert body["timed_out"] is True and body["exit_code"] == 124, "a program that ends well at its deadline has not succeeded"
    assert body["stdout"] == "so far\n"


def test_what_leaves_the_session_outlives_its_command(shared_sandbox: Sandbox) -> None:
    result = shared_sandbox.exec("setsid sleep 6666 >/dev/null 2>&1 & sleep 5555 & echo started", timeout_seconds=20)
    assert result.stdout == "started\n", "children in the background hold up nobody"
    process = shared_sandbox.commands.run("setsid sleep 4444 & sleep 3333 & wait", background=True)
    eventually("nothing started", lambda: running(shared_sandbox, "sleep 4444") == 1 == running(shared_sandbox, "sleep 3333"))
    process.kill()
    eventually("the session is not gone", lambda: running(shared_sandbox, "sleep 3333") == 0)
    assert running(shared_sandbox, "sleep 4444") == running(shared_sandbox, "sleep 6666") == 1
    shared_sandbox.exec("pkill -fx 'sleep (4444|5555|6666)'")


# Not as fast as it can: on a busy machine that may outrun the agent, and then the whole sandbox ends.
GREEDY = """
import time
kept = []
while True:
    kept.append(b" " * 2_000_000)
    time.sleep(0.005)
"""


def test_every_end_has_its_reason(sandbox: Sandbox) -> None:
    run = sandbox.commands.run
    ended = run("exit 3", background=True).wait()
    assert (ended.reason, ended.exit_code, ended.signal) == ("exited", 3, None)
    ended = sandbox.exec("kill -SEGV $$")
    assert (ended.reason, ended.exit_code, ended.signal) == ("signaled", 139, "SIGSEGV")
    process = run("sleep 1000", background=True)
    process.signal(15)
    assert (process.wait().reason, process.wait().signal) == ("signaled", "SIGTERM")
    with pytest.raises(ConflictError):
        process.signal("TERM")
    process = run("trap '' TERM; sleep 1000", background=True)
    process.kill()
    assert (process.wait().reason, process.wait().exit_code) == ("killed", 137)
    process = run("sleep 1000", background=True, timeout_seconds=0.3)
    with pytest.raises(SandboxTimeout):
        process.wait()
    assert process.info().reason == "timeout"
    with pytest.raises(CommandError, match="out of memory"):
        sandbox.exec(["python3", "-c", GREEDY], timeout_seconds=50, check=True)
    alive = sandbox.exec("echo alive")
    assert alive.stdout == "alive\n", alive
    reasons = [p.reason for p in sandbox.commands.list() if p.cmd == "sleep 1000"]
    assert reasons == ["signaled", "timeout"]


def test_output_is_not_lost_with_its_sandbox(daemon: Daemon) -> None:
    sb = Sandbox.create(template="code-interpreter", ttl_seconds=600, api_url=daemon.url, api_key=daemon.key)
    t, got = run_in_thread(lambda: sb.exec("echo before; echo this >&2; touch /tmp/there; sleep 600", timeout_seconds=60))
    wait_for_file(sb, "/tmp/there")
    sb.kill()
    t.join(60)
    assert isinstance(got[0], PandastackError) and not isinstance(got[0], SandboxTimeout), got
    assert (got[0].stdout, got[0].stderr) == ("before\n", "this\n")


def test_a_stuck_command_leaves_the_sandbox_usable(shared_sandbox: Sandbox) -> None:
    stuck = shared_sandbox.commands.run("cat /dev/zero > /dev/null", background=True, stdin=True)
    assert shared_sandbox.exec("echo usable").stdout == "usable\n"
    assert stuck.info().running
    stuck.kill()


def test_a_program_that_asks_gets_an_end_and_not_a_wait(shared_sandbox: Sandbox) -> None:
    result = shared_sandbox.exec(["python3", "-c", "input('your name? ')"], timeout_seconds=30)
    assert result.exit_code == 1 and "EOFError" in result.stderr


def test_orphans_are_reaped_and_eat_no_process_ids(shared_sandbox: Sandbox) -> None:
    count = lambda: int(shared_sandbox.exec("ps -e | wc -l").stdout)  # noqa: E731
    before = count()
    for _ in range(5):
        shared_sandbox.exec("for i in $(seq 20); do (sleep 0.01 &); done")
    eventually("orphans are left", lambda: count() <= before)
    assert shared_sandbox.exec("ps -eo stat | grep -c ^Z").stdout == "0\n"


# What goes in and comes out


def test_input_of_a_hundred_megabytes(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    data = os.urandom(1 << 20) * 100
    with daemon.takes_less_than(160):
        result = shared_sandbox.exec("sha256sum; cat", stdin=data, timeout_seconds=120)
        assert result.stdout.split()[0] == hashlib.sha256(data).hexdigest()
        assert shared_sandbox.exec("head -c 5", stdin=data).exit_code == 0, "a program need not read it all"


def test_input_in_pieces_and_its_end(shared_sandbox: Sandbox) -> None:
    process = shared_sandbox.commands.run("while read -r line; do echo \"got $line\"; done; echo end", background=True, stdin=True)
    seen: list[str] = []
    for event in process:
        if event.type == "started":
            process.send_stdin("on")
            process.send_stdin(b"e\n")
        elif event.type == "stdout":
            seen.append(event.text)
            if "".join(seen) == "got one\n":
                process.send_stdin("two\n", close=True)
    assert "".join(seen) == "got one\ngot two\nend\n"
    with pytest.raises(ConflictError):
        process.send_stdin("late")


def test_a_flood_is_bounded_with_its_head_its_tail_and_its_exit_code(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    total = 100_000_000
    cmd = f"echo first; yes 0123456789abcde | head -c {total}; echo last; echo apart >&2; exit 7"
    with daemon.takes_less_than(128):
        result = shared_sandbox.exec(cmd, timeout_seconds=120)
    assert result.exit_code == 7 and result.stderr == "apart\n"
    assert result.stdout.startswith("first\n0123") and result.stdout.endswith("last\n")
    kept = len(result.stdout) - len(next(line for line in result.stdout.splitlines() if "left out" in line)) - 2
    assert result.truncated and result.stdout_dropped + kept == total + len("first\nlast\n")
    assert kept <= 1 << 20


@pytest.mark.parametrize("size", [300, 50_000, 900_000])
def test_output_that_others_cut_is_whole(shared_sandbox: Sandbox, size: int) -> None:
    result = shared_sandbox.exec(f"head -c {size} /dev/zero | tr '\\0' x")
    assert result.stdout == "x" * size and not result.truncated


def test_newlines_quotes_and_long_lines_are_not_mangled(shared_sandbox: Sandbox) -> None:
    words = ["a b", "$HOME", "it's", '"q"', "line\nbreak", "tab\t", "back\\slash", "ü数🎉", "", "*"]
    assert shared_sandbox.exec(["printf", "%s|", *words]).stdout == "|".join(words) + "|"
    script = "x='" + "y" * 12_000 + "'\r\nprintf %s \"$x\" | wc -c\n"
    assert shared_sandbox.exec(script.replace("\r", "")).stdout.strip() == "12000"
    assert shared_sandbox.exec("cat", stdin="a\r\nb\n\n").stdout == "a\r\nb\n\n"


def test_environment_folder_and_user(shared_sandbox: Sandbox) -> None:
    result = shared_sandbox.exec("echo $A $(pwd) $(id -un)", envs={"A": "ä b"}, cwd="/tmp", user="nobody")
    assert result.stdout == "ä b /tmp nobody\n"


# Faces


def test_many_commands_over_one_websocket(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    async def talk() -> dict[str, list[dict[str, Any]]]:
        heard: dict[str, list[dict[str, Any]]] = {}
        url = f"{daemon.url}/v1/sandboxes/{shared_sandbox.id}/exec/ws"
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {daemon.key}"}) as session:
            async with session.ws_connect(url) as ws:
                for i in range(10):
                    await ws.send_json({"id": str(i), "cmd": f"sleep 0.{9 - i}; echo {i}; exit {i}"})
                await ws.send_json({"id": "late", "cmd": "echo up; sleep 60", "timeout_seconds": 1})
                await ws.send_json({"id": "dropped", "cmd": "echo up; sleep 60"})
                ended = 0
                async for message in ws:
                    body = json.loads(message.data)
                    heard.setdefault(body["id"], []).append(body)
                    if body["id"] == "dropped" and "stream" in body:
                        await ws.send_json({"id": "dropped", "cancel": True})
                    ended += "stream" not in body
                    if ended == 12:
                        break
        return heard

    heard = asyncio.run(talk())
    for i in range(10):
        said = heard[str(i)]
        assert "".join(m.get("data", "") for m in said) == f"{i}\n" and said[-1] == {"id": str(i), "exit": i}
    assert "timeout" in heard["late"][-1]["error"] and heard["dropped"][-1]["error"].startswith("cancelled")


def test_the_command_line_passes_bytes_and_exit_codes_through(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    def cli(*args: str, **options: Any) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run([BIN, "sandbox", *args], env=daemon.env, capture_output=True, timeout=60, **options)

    data = os.urandom(300_000)
    done = cli("exec", shared_sandbox.id, "cat; echo err >&2; exit 9", input=data)
    assert (done.returncode, done.stdout, done.stderr) == (9, data, b"err\n")
    done = cli("exec", "-d", "--env", "A=b c", "--cwd", "/tmp", "--user", "nobody", shared_sandbox.id, "echo $A $(pwd) $(id -un); exit 4")
    assert done.returncode == 0, done.stderr
    done = cli("attach", shared_sandbox.id, done.stdout.decode().strip())
    assert (done.returncode, done.stdout) == (4, b"b c /tmp nobody\n")
    assert cli("exec", "--timeout", "0.5", shared_sandbox.id, "sleep 60").returncode == 5
