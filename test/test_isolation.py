"""What code inside must not be able to do."""

from __future__ import annotations

from pandastack import Sandbox


def test_loopback_works(shared_sandbox: Sandbox) -> None:
    ex = shared_sandbox.run_code(
        "import socket, threading\nl = socket.create_server(('127.0.0.1', 0))\n"
        "c = socket.create_connection(l.getsockname()); s, _ = l.accept(); s.send(b'hi'); c.recv(2)")
    assert ex.text == "b'hi'"


def test_root_inside_is_nobody_outside(daemon, shared_sandbox: Sandbox) -> None:
    import os
    from hostview import processes
    assert shared_sandbox.exec("id -u").stdout == "0\n"
    sandboxes = [pid for pid, cmd in processes().items() if str(daemon.data) in cmd and "runsc-sandbox" in cmd]
    assert sandboxes
    for pid in sandboxes:
        with open(f"/proc/{pid}/uid_map") as f:
            inside, outside, _ = f.read().split()
        status = open(f"/proc/{pid}/status").read()
        uid = int(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1])
        assert uid != 0 or outside != "0", f"process {pid} is root of the host"
        assert os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")


def test_host_files_cannot_be_seen(daemon, shared_sandbox: Sandbox) -> None:
    out = shared_sandbox.exec(f"ls {daemon.data} 2>&1; cat /proc/1/environ | tr '\\0' '\\n'; cat /proc/mounts").stdout
    assert "No such file" in out
    assert str(daemon.data) not in out.replace(f"'{daemon.data}'", "")


def test_kernel_is_not_the_hosts(shared_sandbox: Sandbox) -> None:
    import platform
    assert shared_sandbox.exec("uname -r").stdout.strip() != platform.release()
