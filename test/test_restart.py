"""The daemon is killed in the middle of everything and comes back."""

from __future__ import annotations

import threading
import time

from daemon import Daemon
from pandastack import Sandbox


def run_in_thread(fn) -> tuple[threading.Thread, list[object]]:
    got: list[object] = []

    def call() -> None:
        try:
            got.append(fn())
        except BaseException as e:  # handed to the test
            got.append(e)

    t = threading.Thread(target=call)
    t.start()
    return t, got


def wait_for_file(sb: Sandbox, path: str) -> None:
    deadline = time.monotonic() + 30
    while not sb.filesystem.exists(path):
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.05)


def test_kill_9_in_the_middle_of_a_waiting_cell(own_daemon: Daemon) -> None:
    d = own_daemon
    sb = Sandbox.create(template="code-interpreter", ttl_seconds=600, api_url=d.url, api_key=d.key)
    ctx = sb.create_code_context()
    ctx.run_code("kept = 'still here'")
    t, got = run_in_thread(lambda: ctx.run_code(
        "import time\nwith open('/workspace/ran', 'a') as f: f.write('once\\n')\n"
        "print('early', flush=True)\ntime.sleep(6)\nprint('late')\nkept", timeout_seconds=60))
    wait_for_file(sb, "/workspace/ran")
    d.kill9()
    time.sleep(0.5)
    d.start()
    t.join(60)
    assert not t.is_alive(), "the caller never got an answer"
    ex = got[0]
    assert not isinstance(ex, BaseException), ex
    assert ex.stdout == "early\nlate\n"
    assert ex.text == "'still here'"
    assert sb.filesystem.read("/workspace/ran") == b"once\n", "the cell ran exactly once"
    assert ctx.run_code("kept").text == "'still here'"


def test_a_restart_keeps_sandboxes_and_the_wall_clock_of_their_lives(own_daemon: Daemon) -> None:
    d = own_daemon
    short = Sandbox.create(template="code-interpreter", ttl_seconds=3, api_url=d.url, api_key=d.key)
    long = Sandbox.create(template="code-interpreter", ttl_seconds=600, metadata={"a": "b"}, api_url=d.url, api_key=d.key)
    d.kill9()
    time.sleep(3)
    d.start()
    deadline = time.monotonic() + 20
    while any(s.id == short.id for s in Sandbox.list(api_url=d.url, api_key=d.key)):
        assert time.monotonic() < deadline, "expiry was forgotten over the restart"
        time.sleep(0.1)
    again = Sandbox.get(long.id, api_url=d.url, api_key=d.key)
    assert again.metadata == {"a": "b"}
    assert again.run_code("1+1").text == "2"


def test_a_second_daemon_on_the_same_data_is_refused(own_daemon: Daemon) -> None:
    import subprocess
    from daemon import BIN, free_port
    p = subprocess.run([BIN, "serve", "--listen", f"127.0.0.1:{free_port()}", "--data-dir", own_daemon.data],
                       env=own_daemon.env, capture_output=True, text=True, timeout=30)
    assert p.returncode != 0
    assert "another daemon" in p.stderr and "--data-dir" in p.stderr


def test_kill_9_in_the_middle_of_a_snapshot(own_daemon: Daemon) -> None:
    """The sandbox is being written down when the next daemon finds it, and must be let go on only after that."""
    d = own_daemon
    sb = Sandbox.create(template="code-interpreter", ttl_seconds=600, memory_mb=1024, api_url=d.url, api_key=d.key)
    sb.run_code("import os\nkept = os.urandom(1 << 20) * 200\nsum(kept[::4096])")
    for _ in range(3):
        known = set(d.data.rglob("pages.img"))
        t, _ = run_in_thread(lambda: sb.snapshot("halfway"))
        deadline = time.monotonic() + 30
        while not any(image.stat().st_size for image in set(d.data.rglob("pages.img")) - known):
            assert t.is_alive() and time.monotonic() < deadline, "no image was begun"
        d.kill9()
        d.start()
        t.join(90)
        assert not t.is_alive(), "the caller never got an answer"
        assert Sandbox.get(sb.id, api_url=d.url, api_key=d.key).status == "running"
        assert sb.run_code("len(kept)").text == str(200 << 20)
    sb.kill()
