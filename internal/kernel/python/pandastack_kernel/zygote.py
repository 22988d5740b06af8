"""The zygote: a warm interpreter that does nothing but fork.

Started by the guest agent as ``python -m pandastack_kernel.zygote`` with a SOCK_SEQPACKET socket as descriptor 3.
It ends when that socket closes.
"""

from __future__ import annotations

import array
import gc
import importlib
import json
import os
import platform
import select
import signal
import socket
import sys
import time
import warnings
from typing import Any

MESSAGE_LIMIT = 64 << 10
_SOCKET = 3


class Zygote:
    """Imports, reports, forks, and tells who ended."""

    def __init__(self, agent: socket.socket) -> None:
        self._agent = agent
        self._woken, self._waker = os.pipe()
        for fd in (self._woken, self._waker):
            os.set_blocking(fd, False)
        self._children: set[int] = set()

    def warm_up(self) -> dict[str, Any]:
        """Import everything, build the shell, and return the `ready` message."""
        from . import toolbox, warmup
        from .context import Context
        from .immortal import make_immortal

        toolbox.install(os.environ.pop("PANDASTACK_TOOLS", ""))

        wanted = json.loads(os.environ.pop("PANDASTACK_IMPORTS", "") or json.dumps(warmup.DEFAULT_IMPORTS))
        code = os.environ.pop("PANDASTACK_WARMUP", "")
        imports: dict[str, float] = {}
        failed: dict[str, str] = {}
        self._context = Context()
        for name in wanted:
            began = time.monotonic()
            try:
                importlib.import_module(name)
                imports[name] = round(time.monotonic() - began, 3)
            except BaseException as error:
                failed[name] = f"{type(error).__name__}: {error}"[:1000]
        for label, source in (("(warm-up)", warmup.ZYGOTE_CODE), ("PANDASTACK_WARMUP", code)):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # a missing font is the template's affair
                    exec(compile(source, label, "exec"), {"__name__": "__warmup__"})
            except BaseException as error:
                failed[label] = f"{type(error).__name__}: {error}"[:1000]
        self._context.prepare()
        _end_native_threads()
        gc.collect()
        make_immortal()
        gc.freeze()
        return {
            "op": "ready",
            "version": platform.python_version(),
            "imports": imports,
            "failed": failed,
            "threads": len(os.listdir("/proc/self/task")),
        }

    def serve(self) -> None:
        """Handle requests until the agent closes the socket."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        poller = select.poll()
        poller.register(self._agent, select.POLLIN)
        poller.register(self._woken, select.POLLIN)
        self._reap()
        while True:
            ready = {fd for fd, _ in poller.poll()}
            if self._woken in ready:
                self._drain_wakeups()
                self._reap()
            if self._agent.fileno() in ready and not self._request():
                return

    def send(self, message: dict[str, Any]) -> None:
        self._agent.send(json.dumps(message).encode()[:MESSAGE_LIMIT])

    def _request(self) -> bool:
        descriptors = array.array("i")
        try:
            body, ancillary, _, _ = self._agent.recvmsg(
                MESSAGE_LIMIT, socket.CMSG_SPACE(4 * descriptors.itemsize), socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            return False
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        if not body:
            return False
        token = ""
        try:
            message = json.loads(body)
            token = message.get("id", "")
            if message.get("op") != "fork":
                raise ValueError(f"unknown op {message.get('op')!r}")
            if len(descriptors) != 4:
                raise ValueError(f"a fork needs 4 descriptors, {len(descriptors)} came")
            pid = self._fork(*descriptors, ahead=bool(message.get("ahead")))
        except Exception as error:
            self.send({"op": "fork_failed", "id": token, "error": f"{type(error).__name__}: {error}"})
        else:
            self.send({"op": "forked", "id": token, "pid": pid})
        finally:
            for fd in descriptors:
                os.close(fd)
        return True

    def _fork(self, control: int, sync: int, out: int, err: int, *, ahead: bool) -> int:
        pid = os.fork()
        if pid:
            self._children.add(pid)
            return pid
        status = 70
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._agent.close()
            os.close(self._woken)
            os.close(self._waker)
            status = self._context.live(control, sync, out, err, rehearse=ahead)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)

    def _drain_wakeups(self) -> None:
        try:
            while os.read(self._woken, 4096):
                pass
        except BlockingIOError:
            pass

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._children.discard(pid)
            if os.WIFSIGNALED(status):
                self.send({"op": "exited", "pid": pid, "signal": os.WTERMSIG(status)})
            else:
                self.send({"op": "exited", "pid": pid, "code": os.WEXITSTATUS(status)})


def _end_native_threads() -> None:
    """Fork once for nothing: OpenBLAS ends its threads before a fork and starts new ones when next used."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


def _own_environment() -> None:
    """Settings that must stand before the first import, and what the programs of a cell must not inherit."""
    # Arrow's own allocators start a thread (jemalloc) or reserve a gigabyte of addresses (mimalloc), which RLIMIT_AS
    # counts; OpenMP's workers would spin while they wait.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    browser = "/usr/bin/chromium-headless-shell"  # a name that kaleido does not look for
    if os.path.exists(browser):
        os.environ.setdefault("BROWSER_PATH", browser)
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    os.environ.pop("PYTHONPATH", None)
    # The kernel stays importable, but behind everything else; the working folder comes first, as in a notebook.
    sys.path[:] = ["", *(path for path in sys.path if path not in ("", os.getcwd(), package)), package]
    folder = os.path.dirname(sys.executable)
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if folder not in path:
        os.environ["PATH"] = os.pathsep.join([folder, *path])


def main() -> None:
    """Run a zygote on descriptor 3 until it is closed."""
    agent = socket.socket(fileno=_SOCKET)
    agent.set_inheritable(False)
    _own_environment()
    zygote = Zygote(agent)
    ready = zygote.warm_up()
    zygote.send(ready)
    zygote.serve()


if __name__ == "__main__":
    # As __main__ this module would be replaced by the shell's own; run the imported one.
    from pandastack_kernel.zygote import main as run

    run()
