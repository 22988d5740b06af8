"""Snapshots, hibernation, pauses and forks of sandboxes, on the real thing.

The tests are named for what users of such systems have reported.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import pandastack
from daemon import Daemon

DEADLINE = 60.0


@pytest.fixture(scope="module")
def host() -> Iterator[Daemon]:
    """A daemon whose data folder these tests may look into, and which they may kill."""
    d = Daemon(pool_ready=0, pool_prepared=1, hibernated_for="720h").start()
    yield d
    if d.process.poll() is not None:
        d.start()
    for sb in pandastack.Sandbox.list(api_url=d.url, api_key=d.key):
        sb.kill()
    code, tail = d.stop(), d.tail()
    left = os.listdir(d.data / "images")
    d.remove()
    assert code == 0, tail
    assert all(name.startswith("sn-") for name in left), left


def make(d: Daemon, **options: object) -> pandastack.Sandbox:
    options.setdefault("ttl_seconds", 600)
    return pandastack.Sandbox.create("code-interpreter", api_url=d.url, api_key=d.key, **options)


def out(target: object, code: str, **options: object) -> str:
    done = target.run_code(code, **options)
    assert done.error is None, done.error
    return done.stdout.strip()


def until(condition, what: str) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)


def clock_is_right(sb: pandastack.Sandbox) -> None:
    """The wall clock inside is between the moments before and after it was asked, and a new sleep takes its time."""
    before = time.time()
    inside = float(out(sb, "import time; print(time.time())"))
    assert before - 0.5 < inside < time.time() + 0.5
    assert out(sb, "t = time.monotonic(); time.sleep(0.2); print(time.monotonic() - t >= 0.2)") == "True"


STATE = """
import numpy as np, pandas as pd, subprocess, threading, socket, random, tempfile
df = pd.DataFrame({"a": range(5)})
big = np.arange(1_000_000)
child = subprocess.Popen(["sleep", "3600"])
ticks = 0
stop = threading.Event()
def tick():
    global ticks
    while not stop.wait(0.05):
        ticks += 1
thread = threading.Thread(target=tick, daemon=True); thread.start()
a, b = socket.socketpair()
a.send(b"in flight")
deleted = tempfile.TemporaryFile(); deleted.write(b"deleted, and open"); deleted.flush()
open("/workspace/file", "w").write("kept")
"""
LOOK = """
import time
before = ticks; time.sleep(0.3)
deleted.seek(0)
print(int(df.a.sum()), int(big[-1]), child.poll(), ticks > before, b.recv(99, socket.MSG_PEEK).decode(), deleted.read().decode(), open("/workspace/file").read())
"""
SEEN = "10 999999 None True in flight deleted, and open kept"


def test_the_kernel_state_comes_back(host: Daemon) -> None:
    """Variables, files, threads, children, sockets; under the same context ids; and the original never notices."""
    with make(host, envs={"TOKEN": "t"}, metadata={"a": "b"}) as sb:
        sb.run_code(STATE)
        second = sb.create_code_context(cwd="/tmp")
        second.run_code("x = 'second'")
        server = sb.commands.run("while sleep 0.1; do date >> /tmp/dates; done", background=True)
        ids = sorted(c.id for c in sb.contexts())
        snapshot = sb.snapshot("evening", {"k": "v"})
        assert snapshot.size_bytes > 50 << 20
        sb.run_code("df = None; open('/workspace/file', 'w').write('changed')")
        assert out(sb, "print(child.poll(), ticks > 0)") == "None True"
        with pandastack.Sandbox.create(from_snapshot=snapshot, ttl_seconds=600, api_url=host.url, api_key=host.key) as copy:
            assert out(copy, LOOK) == SEEN
            assert sorted(c.id for c in copy.contexts()) == ids
            assert out(copy.context(second.id), "import os; print(x, os.getcwd())") == "second /tmp"
            assert copy.exec("echo $TOKEN; hostname; cat /etc/hostname").stdout.split() == ["t", copy.id, copy.id]
            assert copy.exec("cat /etc/machine-id").stdout != sb.exec("cat /etc/machine-id").stdout
            assert copy.exec("cat /run/pandastack-generation").stdout.split() == [str(copy.info.generation)] != [str(sb.info.generation)]
            lines = copy.exec("wc -l < /tmp/dates").stdout
            until(lambda: copy.exec("wc -l < /tmp/dates").stdout != lines, "the process in the copy goes on")
            assert copy.info.from_snapshot == snapshot and [p.pid for p in copy.commands.list() if p.running] == [server.pid]
        listed = sb._client.snapshots.list(sb.id)
        assert [s.id for s in listed] == [snapshot.id]
        sb._client.snapshots.delete(snapshot)


def test_eight_siblings_differ(host: Daemon) -> None:
    """Four copies twice: random state, names and ids of copies are their own; with reseed=False they are the same."""
    draw = (
        "import os, uuid, random, secrets, ssl, tempfile, socket, numpy as np\n"
        "print(os.urandom(8).hex(), uuid.uuid4(), random.random(), np.random.rand(), secrets.token_hex(8), ssl.RAND_bytes(8).hex(),"
        " socket.gethostname(), open('/etc/machine-id').read().strip(), tempfile.mktemp())"
    )
    with make(host) as sb:
        sb.run_code(draw)  # all of them were used before
        sb.run_code("random.seed(1); np.random.seed(1)")
        drawn = []
        for _ in range(2):
            children = sb.fork(4)
            drawn += [out(child, draw).split() for child in children]
            for child in children:
                child.kill()
        for column in zip(*drawn):
            assert len(set(column)) == 8, column
        snapshot = sb.snapshot()
        same = []
        for _ in range(2):
            with pandastack.Sandbox.create(from_snapshot=snapshot, reseed=False, api_url=host.url, api_key=host.key) as copy:
                same.append(out(copy, "import random, numpy as np; print(random.random(), np.random.rand())"))
        assert same[0] == same[1]
        sb._client.snapshots.delete(snapshot)


def test_files_survive_ten_rounds(host: Daemon) -> None:
    """Files lost after the second resume; an incomplete automatic pause; a second resume that fails; a resume right after."""
    with make(host) as sb:
        sb.run_code(STATE)
        context = sb.create_code_context()
        context.run_code("rounds = []")
        for n in range(10):
            sb.filesystem.write(f"/workspace/round-{n}", f"{n}" * 1000)
            context.run_code(f"rounds.append({n})")
            sb.hibernate()
            if n % 3 == 0:
                sb.wake()  # else the next call does
            names = sb.exec("ls /workspace | grep -c round-; cat /workspace/round-* | md5sum | cut -c1-8").stdout.split()
            assert names[0] == str(n + 1)
        assert out(context, "print(len(rounds), rounds[-1])") == "10 9"
        assert out(sb, LOOK) == SEEN
        assert sb.refresh().generation == 11


def test_wake_keeps_random_state_and_clock(host: Daemon) -> None:
    """A clock that lags behind after a resume; the same sandbox goes on with its own random numbers."""
    with make(host) as sb:
        sb.run_code("import random, time, asyncio; random.seed(7); first = random.random(); started = time.time()")
        expected = out(sb, "state = random.getstate(); print(random.random()); random.setstate(state)")
        machine = sb.exec("cat /etc/machine-id").stdout
        sb.hibernate()
        assert sb.refresh().status == "hibernated"
        assert out(sb, "print(random.random())") == expected
        assert abs(float(out(sb, "print(time.time())")) - time.time()) < 5
        assert sb.exec("cat /etc/machine-id").stdout == machine
        # A sleep that was pending ends, and new ones take their time.
        sb.run_code("import threading; done = threading.Event(); threading.Timer(1, done.set).start()")
        sb.hibernate()
        assert out(sb, "print(done.wait(30)); t = time.monotonic(); time.sleep(0.2); print(0.2 <= time.monotonic() - t < 5)") == "True\nTrue"


def test_a_pause_keeps_state_and_clock(host: Daemon) -> None:
    """A clock that is behind by as long as the sandbox stood still; timers that never come."""
    with make(host) as sb:
        sb.run_code(STATE)
        sb.run_code("done = threading.Event(); threading.Timer(1, done.set).start()")
        for _ in range(2):
            sb.pause()
            time.sleep(1.5)  # by so much the clock would be behind
            sb.resume()
            clock_is_right(sb)
        assert out(sb, "print(done.wait(30))") == "True"
        assert out(sb, LOOK) == SEEN


def test_a_storm_of_calls_wakes_it_once(host: Daemon) -> None:
    with make(host) as sb:
        sb.run_code("x = 5")
        sb.hibernate()
        with ThreadPoolExecutor(20) as pool:
            got = list(pool.map(lambda n: sb.exec(f"echo {n}").stdout.strip(), range(20)))
        assert got == [str(n) for n in range(20)]
        assert sb.refresh().generation == 2
        assert out(sb, "print(x)") == "5"


def test_running_cells_are_waited_for_or_carried(host: Daemon) -> None:
    with make(host) as sb:
        context = sb.create_code_context()
        answers: list[object] = []
        code = "import time\nfor n in range(40):\n    time.sleep(0.1)\nprint('ran to its end')"
        runner = threading.Thread(target=lambda: answers.append(context.run_code(code)))
        runner.start()
        until(lambda: any(c.info().state == "busy" for c in sb.contexts()), "the cell runs")
        child = sb.fork(carry_running=True)
        snapshot = sb.snapshot()  # waits for its end
        runner.join()
        assert answers[0].stdout == "ran to its end\n"  # its client noticed nothing
        running = [c.id for c in child.contexts()]
        assert context.id in running
        child.kill()
        runner = threading.Thread(target=lambda: answers.append(context.run_code("time.sleep(60)", timeout_seconds=90)))
        runner.start()
        time.sleep(0.5)
        began = time.monotonic()
        with pytest.raises(pandastack.ConflictError, match="carry_running"):
            sb.snapshot()
        assert time.monotonic() - began > 5
        context.interrupt()
        runner.join()
        assert answers[1].end == "interrupted" and answers[1].state_survived
        sb._client.snapshots.delete(snapshot)


DRAW = """
import json, os, secrets, sys, threading, time, uuid
drawn = []
def draw():
    while True:
        drawn.append((time.time_ns(), uuid.uuid4().hex, os.urandom(8).hex(), secrets.token_hex(8)))
        time.sleep(0.001)
"""
DRAW_BESIDE = DRAW + """
threading.Thread(target=draw, daemon=True).start()
while len(drawn) < 100:
    time.sleep(0.01)
open("/workspace/draws", "w").close()
for line in sys.stdin:
    print(json.dumps(list(drawn)), flush=True)
"""


def test_what_is_drawn_while_copies_are_made_is_never_drawn_twice(host: Daemon) -> None:
    """A thread of a context, and a program beside it, draw all the time, over a fork: also in the first moments of the copies.

    What was drawn before the fork is in all of them, with the time at which it was drawn. A value with two times was drawn twice.
    """
    with make(host) as sb:
        sb.run_code(DRAW + "threading.Thread(target=draw, daemon=True).start()")
        sb.filesystem.write("/workspace/beside.py", DRAW_BESIDE)
        sb.exec("mkfifo /workspace/ask; (python3 /workspace/beside.py < /workspace/ask > /workspace/said &) ; (exec sleep 3600 > /workspace/ask &)")
        until(lambda: int(out(sb, "print(len(drawn))")) > 100 and sb.filesystem.exists("/workspace/draws"), "both draw")
        copies = sb.fork(4)
        try:
            for where, code in (
                ("a thread of the context", "with open('/workspace/told', 'w') as f: f.write(json.dumps(list(drawn)))"),
                ("a program", "with open('/workspace/ask', 'w') as f: f.write('now\\n')\n"
                              "while not open('/workspace/said').read().endswith('\\n'): time.sleep(0.01)\nos.rename('/workspace/said', '/workspace/told')"),
            ):
                times: dict[str, set[int]] = {}
                lived: list[set[int]] = []
                for member in [sb, *copies]:
                    out(member, code)
                    rows = json.loads(member.filesystem.read("/workspace/told"))  # longer than what a cell may print
                    lived.append({row[0] for row in rows})
                    for at, *values in rows:
                        for value in values:
                            times.setdefault(value, set()).add(at)
                common = set.intersection(*lived)
                assert common and all(own - common for own in lived), f"{where} drew before and after"
                twice = {value: at for value, at in times.items() if len(at) > 1}
                assert not twice, (where, len(twice), list(twice.items())[:3])
        finally:
            for copy in copies:
                copy.kill()


@pytest.mark.slow
def test_the_twentieth_of_a_lineage_is_as_small_as_the_first(host: Daemon) -> None:
    """Snapshots of copies of snapshots that grow, or take along what they were made from."""
    client = pandastack.Client(host.url, host.key)
    sb = make(host)
    sizes, files, lineage = [], [], []
    try:
        sb.run_code(STATE)
        for n in range(20):
            snapshot = sb.snapshot(ttl_seconds=600)
            assert snapshot.parent_id == (lineage[-1] if lineage else None)
            lineage.append(snapshot.id)
            folder = host.data / "images" / snapshot.id
            sizes.append(sum(f.stat().st_blocks * 512 for f in folder.rglob("*")))
            files.append(sorted(f.name for f in folder.rglob("*")))
            sb.kill()
            if n:
                client.snapshots.delete(lineage[-2])  # what came of it needs it no more
            sb = client.sandboxes.create(from_snapshot=snapshot, ttl_seconds=600)
        assert out(sb, LOOK) == SEEN and sb.info.generation == 21
        assert files[-1] == files[0]
        assert sizes[-1] < sizes[2] * 1.1, sizes
        assert [s.id for s in client.snapshots.list() if s.id in lineage] == lineage[-1:]
        # Nor does its sandbox take more of the host than one of the template: as many processes.
        with make(host) as plain:
            assert len(processes_of(host, sb.id)) == len(processes_of(host, plain.id)) > 0
    finally:
        sb.kill()
        for id in lineage[-2:]:
            quiet(lambda: client.snapshots.delete(id))


def processes_of(d: Daemon, id: str) -> list[int]:
    """Those of this host whose command names a sandbox."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if f"{d.data}/".encode() in command and id.encode() in command:
            found.append(int(process.name))
    return found


def spoil(path: Path, how: str) -> None:
    data = bytearray(path.read_bytes())
    if how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["truncated", "flipped"])
@pytest.mark.parametrize("name", ["checkpoint.img", "pages.img", "complete.json"])
def test_damaged_images_are_refused_before_anything_starts(host: Daemon, damaged: tuple, name: str, how: str) -> None:
    snapshot, folder = damaged
    file = folder / name
    kept = file.read_bytes()
    try:
        spoil(file, how)
        with pytest.raises(pandastack.ConflictError, match="damaged|another version|processor"):
            pandastack.Sandbox.create(from_snapshot=snapshot, api_url=host.url, api_key=host.key)
    finally:
        file.write_bytes(kept)


@pytest.fixture(scope="module")
def damaged(host: Daemon) -> Iterator[tuple]:
    with make(host) as sb:
        snapshot = sb.snapshot()
        yield snapshot, host.data / "images" / snapshot
        with pandastack.Sandbox.create(from_snapshot=snapshot, api_url=host.url, api_key=host.key) as copy:
            assert out(copy, "print(1)") == "1"  # whole again, it serves
        sb._client.snapshots.delete(snapshot)


def test_snapshots_of_other_machines_say_so(host: Daemon, damaged: tuple) -> None:
    snapshot, folder = damaged
    mark = folder / "complete.json"
    kept = mark.read_text()
    try:
        for change, words in (
            (('"arch":"amd64"', '"arch":"riscv64"'), "architecture"),
            (('"features":[', '"features":["a-feature-of-2030",'), "a-feature-of-2030"),
            (('"made":"runsc ', '"made":"runsc of another '), "another version"),
        ):
            assert change[0] in kept, kept
            mark.write_text(kept.replace(*change))
            with pytest.raises(pandastack.ConflictError, match=words):
                pandastack.Sandbox.create(from_snapshot=snapshot, api_url=host.url, api_key=host.key)
    finally:
        mark.write_text(kept)


def test_a_reboot_keeps_what_slept_or_was_paused(host: Daemon) -> None:
    """A reboot is the end of every process and of every folder that is there only while something runs."""
    asleep, paused, running = make(host, persistent=True), make(host), make(host, persistent=True)
    for sb in (asleep, paused, running):
        sb.run_code("x = 'still here'")
        sb.filesystem.write("/workspace/f", "file")
    snapshot = asleep.snapshot()
    asleep.hibernate()
    paused.pause()
    host.kill9()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if f"--root={host.data}/gvisor/runsc".encode() in command:
            try:
                os.kill(int(process.name), signal.SIGKILL)
            except ProcessLookupError:
                pass
    subprocess.run(["rm", "-rf", host.data / "run", host.data / "gvisor"], check=True)
    host.start()
    client = pandastack.Client(host.url, host.key)
    assert client.sandboxes.get(running.id).status == "failed"
    for sb in (asleep, paused):
        sb._client = client
    assert out(client.sandboxes.get(asleep.id), "print(x, open('/workspace/f').read())") == "still here file"
    again = client.sandboxes.get(paused.id)
    assert again.status == "paused"
    with pytest.raises(pandastack.ConflictError, match="paused"):
        again.exec("true")
    again.resume()
    assert out(again, "print(x, open('/workspace/f').read())") == "still here file"
    clock_is_right(again)
    fresh = client.sandboxes.create("code-interpreter", ttl_seconds=600)  # the templates are there
    assert out(fresh, "print('x' in globals(), 6 * 7)") == "False 42"
    copy = client.sandboxes.create(from_snapshot=snapshot)
    assert out(copy, "print(x)") == "still here"
    for id in (asleep.id, paused.id, running.id, copy.id, fresh.id):
        client.sandboxes.get(id).kill()
    client.snapshots.delete(snapshot)


def test_a_restart_puts_persistent_ones_to_sleep(host: Daemon) -> None:
    with make(host, persistent=True) as kept, make(host) as plain:
        kept.run_code("x = 1")
        plain.run_code("x = 2")
        assert host.stop() == 0
        host.start()
        client = pandastack.Client(host.url, host.key)
        assert client.sandboxes.get(kept.id).status == "hibernated"
        assert client.sandboxes.get(plain.id).status == "running"
        assert out(client.sandboxes.get(kept.id), "print(x)") == "1"
        assert out(client.sandboxes.get(plain.id), "print(x)") == "2"


def test_idle_ones_fall_asleep(host: Daemon) -> None:
    with make(host, idle_timeout_seconds=2) as sb:
        sb.run_code(STATE)
        second = sb.create_code_context()
        second.run_code("x = 'second'")
        process = sb.commands.run("sleep 4", background=True)
        until(lambda: sb.refresh().status == "hibernated", "it sleeps")
        assert sb.exec("true").exit_code == 0 and sb.refresh().status == "running"
        assert not any(p.running for p in sb.commands.list() if p.pid == process.pid)
        assert out(sb, LOOK) == SEEN and out(second, "print(x)") == "second"


def test_races_of_wake_and_kill_leave_nothing(host: Daemon) -> None:
    for delay in (0.0, 0.05, 0.15, 0.3):
        sb = make(host)
        sb.hibernate()
        waker = threading.Thread(target=lambda: quiet(lambda: sb.exec("true")))
        waker.start()
        time.sleep(delay)
        sb.kill()
        waker.join()
        with pytest.raises(pandastack.NotFoundError):
            sb.refresh()
        assert not list((host.data / "images").glob(f"{sb.id}-*"))
        assert not (host.data / "run" / sb.id).exists() and not (host.data / "gvisor" / "sandboxes" / sb.id).exists()


def quiet(call) -> None:
    try:
        call()
    except pandastack.PandastackError:
        pass


def test_forks_have_memory_and_files_of_their_own(host: Daemon) -> None:
    with make(host, metadata={"run": "7"}) as sb:
        sb.run_code(STATE)
        children = sb.fork(3, metadata={"who": "child"})
        try:
            for n, child in enumerate(children):
                assert out(child, LOOK) == SEEN
                child.run_code(f"x = {n}; open('/workspace/file', 'w').write('{n}')")
            for n, child in enumerate(children):
                assert out(child, "print(x, open('/workspace/file').read())") == f"{n} {n}"
                assert child.metadata == {"run": "7", "who": "child"} and child.info.forked_from == sb.id
            assert out(sb, LOOK) == SEEN
        finally:
            for child in children:
                child.kill()


def test_programs_are_told(host: Daemon) -> None:
    """Hooks of a context, of a program beside it, and the file that every program can watch."""
    program = (
        "import sys, time; sys.path.append('/run/pandastack/program/kernel')\n"
        "from pandastack_kernel import hooks\n"
        "log = open('/workspace/log', 'a', buffering=1)\n"
        "hooks.on_snapshot(lambda: log.write('snapshot\\n'))\n"
        "hooks.on_restore(lambda generation: log.write(f'restore {generation}\\n'))\n"
        "log.write('ready\\n')\n"
        "time.sleep(3600)\n"
    )
    with make(host) as sb:
        sb.filesystem.write("/workspace/program.py", program)
        sb.commands.run("python3 /workspace/program.py", background=True)
        sb.run_code("from pandastack_kernel import hooks\nsaid = []\nhooks.on_snapshot(lambda: said.append('snapshot')); hooks.on_restore(said.append)")
        until(lambda: sb.exec("cat /workspace/log").stdout == "ready\n", "the program is ready")
        child = sb.fork()
        try:
            assert child.exec("cat /workspace/log").stdout == "ready\nsnapshot\nrestore 2\n"
            assert out(child, "print(said)") == "['snapshot', 2]"
        finally:
            child.kill()
        assert sb.exec("cat /workspace/log").stdout == "ready\nsnapshot\n"
        sb.hibernate()
        assert out(sb, "print(said)") == "['snapshot', 'snapshot', 2]"
        assert sb.exec("cat /workspace/log").stdout == "ready\nsnapshot\nsnapshot\nrestore 2\n"


def test_explore_keeps_the_best_branch(host: Daemon) -> None:
    with make(host) as sb:
        sb.filesystem.write("/workspace/n", "5")
        found = sb.explore(
            ["echo $(( $(cat /workspace/n) + 1 )) > /workspace/n", "echo 99 > /workspace/n; cat /workspace/n", "exit 3"],
            score=lambda o: float(o.stdout.strip() or 0),
        )
        try:
            assert found.winner_outcome.index == 1 and found.winner.filesystem.read_text("/workspace/n") == "99\n"
            assert found.outcomes[2].exit_code == 3 and "/workspace/n" in found.outcomes[0].files
            assert len(found.reaped) == 2 and found.reap_failures == {}
            assert sb.filesystem.read_text("/workspace/n") == "5"
        finally:
            found.winner.kill()


def test_a_fork_that_does_not_fit_is_refused_with_numbers() -> None:
    d = Daemon(pool_ready=0, pool_prepared=0, memory_reserve_mb=0).start()
    try:
        with make(d) as sb:
            free = int(next(l for l in open("/proc/meminfo") if l.startswith("MemAvailable")).split()[1]) >> 10
            d.stop()
            d.settings["memory_reserve_mb"] = free - 300
            d.start()
            sb = pandastack.Client(d.url, d.key).sandboxes.get(sb.id)
            with pytest.raises(pandastack.CapacityError, match=r"16 more would take about \d+ MB"):
                sb.fork(16)
            assert out(sb, "print(1)") == "1" and os.listdir(d.data / "images") == []
    finally:
        if d.process.poll() is None:
            for sb in pandastack.Sandbox.list(api_url=d.url, api_key=d.key):
                sb.kill()
            d.stop()
        d.remove()
