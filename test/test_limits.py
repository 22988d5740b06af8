"""Limits of sandboxes: what each one gives when it is met, where that is seen, and what the host has room for."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from daemon import BIN, Daemon
from pandastack import BadRequestError, CapacityError, ConflictError, Sandbox, SandboxTimeout

CPU, MEMORY, DISK, PIDS = 0.5, 600, 128, 150


def eventually(what: str, check: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.1)


def limits_met(daemon: Daemon, sandbox: Sandbox) -> set[str]:
    """The limits that its events are about."""
    request = urllib.request.Request(f"{daemon.url}/v1/sandboxes/{sandbox.id}/events?tail=500", headers={"Authorization": f"Bearer {daemon.key}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return {e["payload"]["limit"] for e in json.load(answer)["events"] if e["type"] == "limit_hit"}


def create(daemon: Daemon, **options: object) -> Sandbox:
    return Sandbox.create(template="code-interpreter", ttl_seconds=600, api_url=daemon.url, api_key=daemon.key, **options)


@pytest.fixture(scope="module")
def limited(daemon: Daemon) -> Iterator[Sandbox]:
    """A sandbox with four limits that are not the template's, from the pool."""
    sb: list[Sandbox] = []

    def pooled() -> bool:
        made = create(daemon, cpu=CPU, memory_mb=MEMORY, disk_mb=DISK, pids=PIDS)
        if made.info.boot_mode != "pool":
            made.kill()
            return False
        sb.append(made)
        return True

    eventually("a sandbox with other limits from the pool", pooled, 60)
    yield sb[0]
    sb[0].kill()


def test_a_sandbox_of_the_pool_has_the_limits_it_was_asked_for(limited: Sandbox) -> None:
    info = limited.info
    assert (info.cpu, info.memory_mb, info.disk_mb, info.pids) == (CPU, MEMORY, DISK, PIDS)
    ex = limited.run_code(
        "import os, resource, shutil\n"
        "total = int(open('/proc/meminfo').readline().split()[1])\n"
        "(total >> 10, shutil.disk_usage('/workspace').total >> 20, resource.getrlimit(resource.RLIMIT_NPROC), os.cpu_count())")
    assert ex.text == f"({MEMORY}, {DISK}, ({PIDS}, {PIDS}), 2)"
    m = limited.metrics()
    assert m.limits == {"cpu": CPU, "memory_mb": MEMORY, "disk_mb": DISK, "pids": PIDS}
    assert 50 << 20 < m.usage.memory_bytes < MEMORY << 20 and 0 < m.usage.processes < PIDS
    assert m.pid > 0 and m.threads > 0 and m.host_rss_bytes > 0 and m.host_vsz_bytes >= m.host_rss_bytes and m.uptime_seconds > 0


def test_too_much_memory_is_a_memory_error_that_names_the_limit(limited: Sandbox) -> None:
    before = limited.metrics().usage.limit_hits.memory_mb
    ex = limited.run_code("x = bytearray(2 << 30)")
    assert (ex.end, ex.error_name) == ("error", "MemoryError")
    assert f"its limit is {MEMORY} MB (memory_mb)" in ex.error
    assert limited.metrics().usage.limit_hits.memory_mb == before + 1


def test_a_command_that_is_ended_for_its_memory_says_so(limited: Sandbox) -> None:
    limited.run_code("kept = 1")
    before = limited.metrics().usage.limit_hits.memory_mb
    r = limited.exec(["python3", "-c", "import time\nx = []\nwhile True: x.append(bytearray(4 << 20)); time.sleep(0.005)"])
    assert r.reason == "oom" and r.exit_code == 137, r
    assert f"its limit is {MEMORY} MB (memory_mb)" in r.hint
    assert limited.metrics().usage.limit_hits.memory_mb == before + 1
    assert limited.run_code("kept").text == "1", "the others keep their state"


def test_a_busy_loop_is_held_back_and_that_is_counted(limited: Sandbox) -> None:
    before = limited.metrics().usage
    limited.run_code("import time\nend = time.process_time() + 1\nwhile time.process_time() < end: pass", timeout_seconds=60)
    after = limited.metrics().usage
    assert after.cpu_seconds > before.cpu_seconds
    assert after.limit_hits.cpu > before.limit_hits.cpu and after.limit_hits.cpu_seconds > before.limit_hits.cpu_seconds


def test_a_deadline_that_was_missed_for_want_of_cpu_says_so(daemon: Daemon) -> None:
    sb = create(daemon, cpu=0.1)  # so little that it is held back on a busy machine, too
    try:
        ex = sb.run_code("while True: pass", timeout_seconds=3)
        assert ex.end == "timeout" and "held back by its limit of 0.1 cores" in ex.error, ex.error
        with pytest.raises(SandboxTimeout) as e:
            sb.exec("while :; do :; done", timeout_seconds=3)
        assert "held back by its limit of 0.1 cores" in (e.value.hint or "")
    finally:
        sb.kill()


def test_a_deadline_that_was_missed_for_want_of_memory_says_so(daemon: Daemon) -> None:
    sb = create(daemon, memory_mb=400)
    try:
        sb.run_code("import pandas as pd\npd.DataFrame({'a': [1]}).describe()")  # what of the template's memory is loaded late counts, too
        ex = sb.run_code(
            "import os, time\nparts = []\n"
            "def free(): return {l.split()[0]: int(l.split()[1]) for l in open('/proc/meminfo')}['MemAvailable:'] >> 10\n"
            "while free() > 140: parts.append(os.urandom(1 << 20))\n"
            "while True: time.sleep(1)", timeout_seconds=5)
        assert ex.end == "timeout" and "of its 400 MB of memory: more memory_mb may help" in ex.error, (ex.end, ex.error, sb.metrics())
    finally:
        sb.kill()


def test_a_full_disk_is_an_error_that_names_the_limit(limited: Sandbox) -> None:
    ex = limited.run_code(f"f = open('/workspace/big', 'wb')\nfor _ in range({DISK}): f.write(bytes(2 << 20))", timeout_seconds=60)
    assert (ex.end, ex.error_name) == ("error", "OSError")
    assert f"The disk of the sandbox is full: its limit is {DISK} MB (disk_mb)." in ex.error
    r = limited.exec("cp /workspace/big /workspace/more")
    assert r.exit_code == 1 and f"{DISK} MB (disk_mb)" in r.hint
    usage = limited.refresh().usage
    assert usage.limit_hits.disk_mb > 0 and usage.disk_bytes > (DISK - 16) << 20
    limited.exec("rm -f /workspace/big /workspace/more")


def test_too_many_processes_are_an_error_that_names_the_limit(limited: Sandbox) -> None:
    r = limited.exec(["/bin/dash", "-c", "i=0; while [ $i -lt 400 ]; do sleep 60 & i=$((i+1)); done"])
    assert r.exit_code != 0 and "Cannot fork" in r.stderr
    assert f"may have {PIDS} processes and threads (pids)" in r.hint
    assert limited.metrics().usage.limit_hits.pids > 0
    limited.exec(["/usr/bin/pkill", "sleep"])


def test_limits_that_were_met_are_events(daemon: Daemon, limited: Sandbox) -> None:
    names = {"cpu", "memory_mb", "disk_mb", "pids"}
    eventually(f"an event for each of {names}", lambda: limits_met(daemon, limited) >= names)


def test_devices_are_no_way_around_the_disk(limited: Sandbox) -> None:
    r = limited.exec("head -c 8M /dev/zero > /dev/file; df --output=size -B1M /dev | tail -1; rm -f /dev/file")
    assert "No space left on device" in r.stderr and r.stdout.strip() == "4"
    r = limited.exec("df --output=size -B1M /dev/shm | tail -1")
    assert int(r.stdout) == MEMORY // 2


def test_top_shows_use_against_limit(daemon: Daemon, limited: Sandbox) -> None:
    out = subprocess.run([BIN, "sandbox", "top", limited.id], env=daemon.env, capture_output=True, text=True, timeout=60, check=True)
    header, row = out.stdout.splitlines()
    assert header.split()[:7] == ["ID", "TEMPLATE", "STATUS", "CPU", "MEMORY", "DISK", "PROCESSES"]
    assert f"/ {MEMORY} MB" in row and f"/ {DISK} MB" in row and f"/ {PIDS}" in row and "% / 50%" in row
    out = subprocess.run([BIN, "--json", "sandbox", "top"], env=daemon.env, capture_output=True, text=True, timeout=60, check=True)
    mine = next(r for r in json.loads(out.stdout) if r["id"] == limited.id)
    assert mine["limits"] == {"cpu": CPU, "memory_mb": MEMORY, "disk_mb": DISK, "pids": PIDS}
    assert mine["usage"]["memory_bytes"] > 0 and mine["usage"]["limit_hits"].keys() == {"cpu", "cpu_seconds", "memory_mb", "disk_mb", "pids"}


def test_a_context_that_has_no_memory_says_that_it_is_memory(daemon: Daemon) -> None:
    sb = create(daemon, memory_mb=400)
    try:
        with pytest.raises(ConflictError, match="no memory left for another context") as e:
            for _ in range(20):
                sb.create_code_context().run_code("import numpy as np\nx = np.ones(6 << 20)")
        assert "memory_mb" in e.value.hint
    finally:
        sb.kill()


def test_a_sandbox_that_is_ended_for_its_memory_says_so(daemon: Daemon) -> None:
    """Attributes of files are gVisor's own memory: nothing inside sees it, so the cgroup is what holds."""
    sb = create(daemon, memory_mb=300)
    try:
        for n in range(20):  # ending contexts gives none of it back
            ex = sb.run_code(
                f"import os\nvalue = os.urandom(60000)\nfor i in range(10000):\n    name = f'/workspace/{n}-{{i}}'\n    open(name, 'w').close()\n"
                "    for j in range(20): os.setxattr(name, f'user.{j}', value)", timeout_seconds=60)
            assert ex.end == "oom" and "300 MB (memory_mb)" in ex.error, (ex.end, ex.error)
            if sb.refresh().status != "running":
                break
        eventually("the sandbox says why it ended", lambda: sb.refresh().end_reason == "oom")
    finally:
        sb.kill()


def shown(sb: Sandbox) -> str | None:
    """What a sandbox believes its memory and disk to be, in MB, and its limit of processes."""
    return sb.run_code(
        "import resource, shutil\n(int(open('/proc/meminfo').readline().split()[1]) >> 10, shutil.disk_usage('/').total >> 20, "
        "resource.getrlimit(resource.RLIMIT_NPROC)[0])").text


def test_limits_go_along_with_snapshots_and_sleep(daemon: Daemon) -> None:
    sb = create(daemon, memory_mb=500, disk_mb=200, pids=120)
    copies: list[Sandbox] = []
    try:
        sb.filesystem.write("/workspace/file", b"x" * (64 << 20))
        snapshot = sb.snapshot()
        for asked, has in (({}, (500, 200)), ({"memory_mb": 700, "disk_mb": 100}, (700, 100))):
            copies.append(Sandbox.create(from_snapshot=snapshot, ttl_seconds=600, api_url=daemon.url, api_key=daemon.key, **asked))
            assert (copies[-1].info.memory_mb, copies[-1].info.disk_mb) == has
            assert shown(copies[-1]).startswith(f"({has[0]}, {has[1]}, ")
            assert copies[-1].metrics().usage.disk_bytes > 64 << 20
        with pytest.raises(BadRequestError) as e:
            Sandbox.create(from_snapshot=snapshot, disk_mb=32, api_url=daemon.url, api_key=daemon.key)
        assert e.value.field == "disk_mb", "less than what is on it"
        sb.hibernate()
        assert shown(sb) == "(500, 200, 120)"
    finally:
        for s in (sb, *copies):
            s.kill()


@pytest.mark.parametrize("field, value, bounds", [
    ("cpu", 0.01, "between 0.1 and"),
    ("cpu", 4096, "between 0.1 and"),
    ("memory_mb", 127, "between 128 and"),
    ("memory_mb", 1 << 30, "between 128 and"),
    ("disk_mb", 15, "between 16 and"),
    ("disk_mb", 1 << 30, "between 16 and"),
    ("pids", 15, "between 16 and 32768"),
    ("pids", 32769, "between 16 and 32768"),
    ("memory_mb", 128, "too little"),  # for what is imported
])
def test_limits_out_of_bounds_are_refused_by_name(daemon: Daemon, field: str, value: float, bounds: str) -> None:
    with pytest.raises(BadRequestError, match=bounds) as e:
        create(daemon, **{field: value})
    assert e.value.field == field


def test_the_host_promises_no_more_than_it_may() -> None:
    """A few hundred MB of all memory may be promised: one small sandbox fits, another does not, and the words have the numbers."""
    total = int(open("/proc/meminfo").readline().split()[1]) >> 10
    daemon = Daemon(memory_overcommit=700 / total, memory_reserve_mb=0, max_sandboxes=0, pool_ready=0, pool_prepared=0).start()
    try:
        with pytest.raises(CapacityError, match=r"no memory left to promise: 0 of [67]\d\d"):
            create(daemon)  # 2048 MB
        sb = create(daemon, memory_mb=512)
        with pytest.raises(CapacityError, match=r"512 of [67]\d\d.* MB \(\d+ × memory_overcommit 0\.\d+\) are given to 1 sandboxes, and this one asks for 512") as e:
            create(daemon, memory_mb=512)
        assert e.value.status_code == 503 and e.value.retry_after == 10
        sb.kill()
        create(daemon, memory_mb=512).kill()  # at once: a kill that has returned has made room
    finally:
        daemon.stop()
        daemon.remove()
