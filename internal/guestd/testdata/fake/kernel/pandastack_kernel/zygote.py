"""A small stand-in for the interpreter side, for the tests of the guest agent.

It speaks the whole protocol with plain exec() instead of IPython.
"""

import array
import ast
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback


def fork_loop(sock):
    started = time.time()
    failed, imports = {}, {}
    for name in json.loads(os.environ.pop("PANDASTACK_IMPORTS", "") or "[]"):
        t = time.time()
        try:
            __import__(name)
            imports[name] = time.time() - t
        except ImportError as e:
            failed[name] = "ImportError: %s" % e
    warmup = os.environ.pop("PANDASTACK_WARMUP", "")
    glob = {"__name__": "__main__"}
    exec(warmup, glob)
    say(sock, op="ready", version="%d.%d.%d" % sys.version_info[:3], imports=imports, failed=failed, threads=1)
    wake_r, wake_w = os.pipe()
    os.set_blocking(wake_w, False)
    signal.set_wakeup_fd(wake_w)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    import select

    while True:
        ready, _, _ = select.select([sock, wake_r], [], [])
        if wake_r in ready:
            os.read(wake_r, 4096)
            while True:
                try:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    break
                if pid == 0:
                    break
                if os.WIFSIGNALED(status):
                    say(sock, op="exited", pid=pid, signal=os.WTERMSIG(status))
                else:
                    say(sock, op="exited", pid=pid, code=os.WEXITSTATUS(status))
        if sock in ready:
            fds = array.array("i")
            msg, anc, _, _ = sock.recvmsg(65536, socket.CMSG_SPACE(16 * 4))
            for level, kind, data in anc:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds.frombytes(data)
            if not msg:
                return
            m = json.loads(msg)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.setsid()
                sock.close()
                os.close(wake_r)
                os.close(wake_w)
                Kernel(*fds, glob=glob).run()
                os._exit(0)
            for fd in fds:
                os.close(fd)
            say(sock, op="forked", id=m["id"], pid=pid)


def say(sock, **m):
    sock.send(json.dumps(m).encode())


class Stream:
    encoding = "utf-8"

    def __init__(self, kernel, fd):
        self.kernel, self.fd = kernel, fd

    def write(self, s):
        if not s:
            return 0
        self.kernel.order(self.fd)
        b = s.encode("utf-8", "surrogateescape")
        while b:
            b = b[os.write(self.fd, b):]
        return len(s)

    def flush(self):
        pass

    def fileno(self):
        return self.fd

    def isatty(self):
        return False


class Kernel:
    def __init__(self, control, sync, out, err, glob):
        self.control = socket.socket(fileno=control)
        self.syncsock = socket.socket(fileno=sync)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.close(out)
        os.close(err)
        self.last = None
        self.glob = glob
        self.count = 0
        self.stopped = None
        self.fds = []
        sys.stdout, sys.stderr = Stream(self, 1), Stream(self, 2)

    def order(self, fd):
        if self.last is not None and self.last != fd:
            self.syncsock.sendall(b"s")
            self.syncsock.recv(1)
        self.last = fd

    def send(self, **m):
        b = json.dumps(m).encode()
        self.control.sendall(struct.pack(">I", len(b)) + b)
        if m["op"] == "result":
            self.last = -1

    def read(self, n):
        b = b""
        while len(b) < n:
            c, fds, _, _ = socket.recv_fds(self.control, n - len(b), 64)
            self.fds += fds
            if not c:
                os._exit(0)
            b += c
        return b

    def fork(self, m):
        """Copies that are nobody's children, as the real kernel makes them."""
        fds, self.fds = self.fds, []
        if self.glob.get("REFUSE"):
            self.send(op="fork_failed", id=m["id"], error=self.glob["REFUSE"])
        else:
            between = os.fork()
            if between == 0:
                for i in range(m["count"]):
                    if os.fork() == 0:
                        os.setsid()
                        self.control.close()
                        self.syncsock.close()
                        own = fds[4 * i:4 * i + 4]
                        for fd in fds:
                            if fd not in own:
                                os.close(fd)
                        copy = Kernel(*own, glob=self.glob)
                        copy.count = self.count
                        if self.glob.get("MUTE"):
                            os._exit(1)
                        copy.send(op="forked", pid=os.getpid())
                        copy.run()
                os._exit(0)
            os.waitpid(between, 0)
            self.send(op="forked", id=m["id"], warnings=self.glob.get("WARN", []))
        for fd in fds:
            os.close(fd)

    def run(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        while True:
            (n,) = struct.unpack(">I", self.read(4))
            m = json.loads(self.read(n))
            if m["op"] == "init":
                if m["cwd"]:  # not for a copy, which keeps what it has
                    os.environ.clear()
                    os.environ.update(m["envs"])
                    os.chdir(m["cwd"])
                self.glob["INIT"] = m
                self.send(op="ready", next=self.count + 1)
            elif m["op"] == "rehearse":
                self.glob["REHEARSED"] = True
                self.send(op="rehearsed")
            elif m["op"] == "reseed":
                self.glob["SEED"] = m["entropy"]
            elif m["op"] == "fork":
                self.fork(m)
            elif m["op"] == "interrupt":
                self.stopped = m["id"]
            elif m["op"] == "run":
                self.cell(m)

    def stop_asked(self):
        """An interrupt frame that came with the cell, or before it."""
        if select.select([self.control], [], [], 0)[0]:
            (n,) = struct.unpack(">I", self.read(4))
            self.stopped = json.loads(self.read(n))["id"]
        return self.stopped == self.id

    def cell(self, m):
        self.count += 1
        self.id, self.last = m["id"], None
        self.glob["show"] = lambda **data: self.send(op="result", id=self.id, data=data, metadata={}, last=False)
        self.glob["kernel"] = self
        end = dict(op="end", id=self.id, status="ok", count=self.count, next=self.count + 1)
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if self.stop_asked():
                raise KeyboardInterrupt
            tree = ast.parse(m["code"])
            last = None
            if tree.body and isinstance(tree.body[-1], ast.Expr):
                last = ast.Expression(tree.body.pop().value)
            exec(compile(tree, "cell", "exec"), self.glob)
            if last is not None:
                v = eval(compile(last, "cell", "eval"), self.glob)
                if v is not None:
                    self.send(op="result", id=self.id, data={"text/plain": repr(v)}, metadata={}, last=True)
        except BaseException as e:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            end.update(status="error", error_name=type(e).__name__, error_value=str(e),
                       traceback=traceback.format_exc())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.send(**end)


if __name__ == "__main__":
    fork_loop(socket.socket(fileno=3))
