"""Users do to their sandboxes whatever can be done, in a random order and some of it at the same moment, while the daemon is killed again and again.

    .venv/bin/python test/lives.py --seconds 300 --seed 7

Each user has up to two sandboxes and two snapshots of their own. A sandbox has contexts, in each a list `log`, and files. A cell appends its
number to the list and to the file `ran`, a command to the file, so that what ran twice, or not at all, shows. What must be true:

- A sandbox holds what was done to it. A copy holds that of the one it was made from at one moment during the call that took the copy:
  variables and files of the same moment.
- A refused call (409, 429, 503, 507) changed nothing, and is refused only where docs/snapshots.md says so. Nothing answers 500.
- Of what was broken off by the end of the daemon, all was done or nothing.
- A sandbox that was killed is not found.
- When all are killed and the daemon has stopped, no process, mount, cgroup, socket and file of it is left.

What a user does in a step hangs on the seed, the user and the number of the step, as far as earlier outcomes are the same; so does when the
daemon is killed, by steps done. On a failure the seed and all steps are printed.
"""

from __future__ import annotations

import argparse
import faulthandler
import itertools
import json
import random
import sys
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple, Optional

from daemon import Daemon
from hostview import view
from pandastack import APIConnectionError, CapacityError, Client, ConflictError, NotFoundError, RateLimitError, Sandbox

MOST_BOXES = 2  # of a user
MOST_SNAPSHOTS = 2
MOST_CONTEXTS = 4  # of a sandbox
FILES = ("a", "b", "c")
SETTLE = 60.0  # seconds that a sandbox may be on its way from one status to another
STUCK = 180.0  # seconds after its end in which a run must have ended

# The status that each operation leaves a sandbox in, by that before it. Nothing: it is a conflict.
STAYS = {"running": "running", "hibernated": "hibernated", "paused": "paused"}
WAKES = {"running": "running", "hibernated": "running"}
LEAVES = {
    "cell": WAKES, "exec": WAKES, "write": WAKES, "remove": WAKES, "branch": WAKES, "close": WAKES, "wake": WAKES,
    "snapshot": STAYS, "fork": STAYS, "ttl": STAYS,
    "hibernate": dict.fromkeys(STAYS, "hibernated"),
    "pause": {"running": "paused", "paused": "paused"},
    "resume": {"running": "running", "paused": "running"},
}
WEIGHTS = {
    "create": 2, "copy": 4, "drop": 2, "kill": 2, "look": 5, "together": 16,
    "cell": 8, "exec": 4, "write": 5, "remove": 2, "branch": 4, "close": 1, "wake": 2,
    "snapshot": 4, "fork": 3, "ttl": 1, "hibernate": 4, "pause": 3, "resume": 4,
}
ALONE = ("close",)  # makes ids unknown to what is done at the same moment


class State(NamedTuple):
    """What a sandbox holds: the list in each context, the text of each file."""

    logs: frozenset[tuple[str, tuple[int, ...]]]
    files: frozenset[tuple[str, str]]

    def with_log(self, context: str, log: Optional[tuple[int, ...]]) -> "State":
        rest = {(c, v) for c, v in self.logs if c != context}
        return self._replace(logs=frozenset(rest if log is None else rest | {(context, log)}))

    def with_file(self, name: str, text: Optional[str]) -> "State":
        rest = {(f, v) for f, v in self.files if f != name}
        return self._replace(files=frozenset(rest if text is None else rest | {(name, text)}))


Effect = Callable[[State], State]


@dataclass
class Box:
    """What is known of a sandbox. It holds one of `states`."""

    sandbox: Sandbox
    states: set[State]
    status: str = "running"
    contexts: list[str] = field(default_factory=lambda: ["default"])
    strays: bool = False  # there may be copies of contexts that nobody heard of
    name: str = ""


@dataclass
class Kept:
    """A snapshot."""

    id: str
    states: set[State]
    contexts: list[str]
    strays: bool
    name: str


@dataclass
class Op:
    kind: str
    token: str  # no two are the same
    context: str = "default"
    file: str = "a"
    slow: bool = False
    carry: bool = False
    outcome: str = ""  # "done", "refused", "gone", or "unknown": it was broken off
    value: Any = None
    error: Optional[BaseException] = None

    def __str__(self) -> str:
        what = {"cell": self.context[:8], "branch": self.context[:8], "close": self.context[:8], "write": self.file, "remove": self.file}.get(self.kind, "")
        return " ".join(filter(None, (self.kind, what, "slow" * self.slow, "carry" * self.carry)))

    def effect(self) -> Optional[Effect]:
        number = int(self.token.rpartition("-")[2])
        if self.kind == "cell":
            return lambda s: s.with_log(self.context, (*dict(s.logs)[self.context], number)).with_file("ran", dict(s.files)["ran"] + f"{number}\n")
        if self.kind == "exec":
            return lambda s: s.with_file("ran", dict(s.files)["ran"] + f"{number}\n")
        if self.kind == "write":
            return lambda s: s.with_file(self.file, text_of(self.token))
        if self.kind == "remove":
            return lambda s: s.with_file(self.file, None)
        if self.kind == "branch" and self.value:
            return lambda s: s.with_log(self.value, dict(s.logs)[self.context])
        if self.kind == "close":
            return lambda s: s.with_log(self.context, None)
        return None


def text_of(token: str) -> str:
    return f"{token}\n" * 1000


class Failure(AssertionError):
    pass


class Lives:
    def __init__(self, seed: int, users: int = 2) -> None:
        self.seed = seed
        self.daemon = Daemon(pool_ready=1, pool_prepared=1, memory_reserve_mb=256)
        self.users = [User(self, n) for n in range(users)]
        self.progress = threading.Condition()
        self.steps = 0
        self.kills = 0
        self.up = False
        self.over = threading.Event()
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.left: dict[str, list[str]] = {}

    def run(self, seconds: float, steps: float = float("inf")) -> "Lives":
        """Until so many seconds have passed, or so many steps have begun."""
        try:
            self.daemon.start()
            with Sandbox.create("code-interpreter", api_url=self.daemon.url, api_key=self.daemon.key):
                pass
            self.daemon.stop()
            before = self.settled_view()
            self.daemon.start()
            self.up = True
            threads = [threading.Thread(target=self.guarded, args=(u.live,), daemon=True) for u in self.users]
            threads.append(threading.Thread(target=self.guarded, args=(self.misfortune,), daemon=True))
            for t in threads:
                t.start()
            with self.progress:
                self.progress.wait_for(lambda: self.over.is_set() or self.steps >= steps, timeout=seconds)
                self.over.set()
                self.progress.notify_all()
            until = time.monotonic() + STUCK
            for t in threads:
                t.join(max(0, until - time.monotonic()))
            if any(t.is_alive() for t in threads):
                faulthandler.dump_traceback(file=sys.stdout)
                self.failures.append(f"a call has not ended {STUCK:.0f} s after the end")
            if not self.failures:
                for user in self.users:
                    self.guarded(user.finish)
            if not self.failures:
                self.guarded(lambda: self.nothing_left(before))
        finally:
            self.clean_up()
        return self

    def guarded(self, what: Callable[[], None]) -> None:
        try:
            what()
        except BaseException:
            self.failures.append(traceback.format_exc())
            self.over.set()
            with self.progress:
                self.progress.notify_all()

    def misfortune(self) -> None:
        """Kills the daemon each few steps, a moment later than the step begins."""
        chance = random.Random(f"{self.seed}/daemon")
        at = 0
        while True:
            at += chance.randint(8, 30)
            with self.progress:
                self.progress.wait_for(lambda: self.steps >= at or self.over.is_set())
            if self.over.wait(chance.random() ** 2 * 1.5):
                return
            with self.progress:
                self.kills += 1
                self.up = False
            self.daemon.kill9()
            self.daemon.start()
            with self.progress:
                self.up = True
                self.progress.notify_all()

    def life(self) -> tuple[int, bool]:
        """Of the daemon. The same before and after a call: it was there all the time."""
        with self.progress:
            return self.kills, self.up

    def wait_up(self) -> None:
        with self.progress:
            if not self.progress.wait_for(lambda: self.up, timeout=STUCK):
                raise Failure("the daemon does not come back")

    def nothing_left(self, before: dict[str, set[str]]) -> None:
        client = Client(self.daemon.url, self.daemon.key)
        if (list_ := client.sandboxes.list()) or client.snapshots.list():
            raise Failure(f"left when all is killed: {list_} {client.snapshots.list()}")
        if code := self.daemon.stop():
            raise Failure(f"the daemon ended with {code}")
        after = self.settled_view()
        self.left = {kind: sorted(after[kind] - before[kind])[:20] for kind in after if after[kind] - before[kind]}
        if self.left:
            raise Failure(f"left on the host: {self.left}")

    def settled_view(self) -> dict[str, set[str]]:
        """After the daemon has stopped; the kernel takes a moment to tidy."""
        deadline = time.monotonic() + 30
        while True:
            now = view(self.daemon.data)
            now["files"] = {f for f in now["files"] if "/backups/" not in f}
            if not any(now[k] for k in now if k != "files") or time.monotonic() > deadline:
                return now
            time.sleep(0.2)

    def clean_up(self) -> None:
        process = self.daemon.process
        if process and self.failures:
            print(self.report())
            if process.poll() is not None:
                self.daemon.start()
            client = Client(self.daemon.url, self.daemon.key)
            for sb in client.sandboxes.list():
                sb.kill()
            for sn in client.snapshots.list():
                client.snapshots.delete(sn)
        self.daemon.stop()
        self.daemon.remove()

    def report(self) -> str:
        lines = [f"seed {self.seed}: {self.steps} steps, {self.kills} kills, {json.dumps(dict(sorted(self.counts.items())))}"]
        if self.failures:
            for u in self.users:
                lines += [f"user {u.number}:", *u.history]
            lines += ["the daemon's last words:", self.daemon.tail(40), *self.failures, f"again with: test/lives.py --seed {self.seed}"]
        return "\n".join(lines)


class User:
    def __init__(self, lives: Lives, number: int) -> None:
        self.lives = lives
        self.number = number
        self.history: list[str] = []
        self.boxes: list[Box] = []
        self.snapshots: list[Kept] = []
        self.token = 0
        self.named = 0
        self.client: Any = None

    def live(self) -> None:
        self.client = Client(self.lives.daemon.url, self.lives.daemon.key)
        for n in itertools.count():
            if self.lives.over.is_set():
                return
            with self.lives.progress:
                self.lives.steps += 1
                self.lives.progress.notify_all()
            self.step(random.Random(f"{self.lives.seed}/{self.number}/{n}"), n)

    def step(self, chance: random.Random, n: int) -> None:
        self.token = n * 10
        kind = chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        which, other = chance.random(), chance.random()
        box = pick(self.boxes, which)
        if box is None and kind != "copy" or kind == "copy" and not self.snapshots:
            kind = "create"
        if kind in ("create", "copy", "fork") and len(self.boxes) >= MOST_BOXES:
            kind = "kill"
        if kind == "snapshot" and len(self.snapshots) >= MOST_SNAPSHOTS:
            kind = "drop"
        self.say(n, f"{kind} {box.name if box else ''}")
        if kind == "create":
            self.create()
        elif kind == "copy":
            self.copy(pick(self.snapshots, which))
        elif kind == "drop":
            if self.snapshots:
                self.drop(pick(self.snapshots, which))
        elif kind == "look":
            self.look(box)
        elif kind == "kill":
            self.kill(box)
        elif kind == "together":
            choice = [k for k in LEAVES if k not in ALONE] + ["kill"]
            if len(self.boxes) >= MOST_BOXES:
                choice.remove("fork")
            if len(self.snapshots) >= MOST_SNAPSHOTS:
                choice.remove("snapshot")
            kinds = chance.choices(choice, [max(1, WEIGHTS[k]) for k in choice], k=2)
            if kinds == ["fork", "fork"] or kinds == ["snapshot", "snapshot"]:
                kinds[1] = "cell"
            if "exec" in kinds and {"snapshot", "fork"} & set(kinds):
                kinds[kinds.index("exec")] = "write"  # a command goes on in a copy, at some time or other
            self.do(box, [self.op(box, k, chance) for k in kinds])
        else:
            self.do(box, [self.op(box, kind, chance)])
        if other < 0.3 and (box := pick(self.boxes, which)):
            self.look(box)

    def op(self, box: Box, kind: str, chance: random.Random) -> Op:
        op = Op(kind, self.new_token(), context=chance.choice(box.contexts), file=chance.choice(FILES), slow=chance.random() < 0.3, carry=chance.random() < 0.25)
        op.slow &= op.kind == "cell"
        op.carry &= op.kind in ("snapshot", "fork", "hibernate")
        if kind == "close" and op.context == "default" or kind == "branch" and len(box.contexts) >= MOST_CONTEXTS:
            op.kind = "cell"
        return op

    def new_token(self) -> str:
        self.token += 1
        return f"{self.number}-{self.token}"

    # Beginnings and ends

    def create(self) -> None:
        of = self.new_token()
        sb = self.made(of, lambda: self.client.sandboxes.create("code-interpreter", ttl_seconds=3600, metadata={"of": of}))
        if sb is None:
            return
        number = int(of.rpartition("-")[2])
        state = State(frozenset({("default", (number,))}), frozenset({("ran", ""), ("zero", of)}))
        self.count("create")
        box = self.add(Box(sb, {state}))
        code = f"log = [{number}]\nopen('/workspace/ran', 'w').close()"
        done = self.persist(lambda: sb.run_code(code))
        if done.error or done.end != "ok":
            raise Failure(f"the first cell in {box.name}: {done}")
        self.persist(lambda: sb.filesystem.write("/workspace/zero", of))

    def copy(self, kept: Kept) -> None:
        of = self.new_token()
        sb = self.made(of, lambda: self.client.sandboxes.create(from_snapshot=kept.id, ttl_seconds=3600, metadata={"of": of}))
        if sb is not None:
            self.count("copy")
            box = self.add(Box(sb, set(kept.states), "running", list(kept.contexts), kept.strays))
            self.say("", f"  copy of {kept.name} is {box.name}")
            self.look(box)
            if not kept.strays:
                kept.states = set(box.states)  # the next one must be the same

    def made(self, of: str, create: Callable[[], Any]) -> Any:
        """A new sandbox, or nothing when it was refused or broken off."""
        life = self.lives.life()
        try:
            return create()
        except (APIConnectionError, CapacityError, ConflictError, RateLimitError) as e:
            there = life == self.lives.life() and life[1]
            if there and not isinstance(e, (CapacityError, RateLimitError)):
                raise
            self.count(f"create: {type(e).__name__}")
            if not there:
                for sb in self.persist(lambda: self.client.sandboxes.list(metadata={"of": of})):
                    self.persist(sb.kill)
            return None

    def add(self, box: Box) -> Box:
        self.named += 1
        box.name = f"s{self.number}.{self.named}"
        self.boxes.append(box)
        self.say("", f"  {box.name} = {box.sandbox.id}")
        return box

    def kill(self, box: Box) -> None:
        self.persist(box.sandbox.kill)
        self.gone(box)

    def gone(self, box: Box) -> None:
        self.boxes.remove(box)
        for call in (box.sandbox.refresh, lambda: box.sandbox.run_code("1"), lambda: box.sandbox.filesystem.read("/workspace/ran")):
            try:
                found = self.persist(call)
            except NotFoundError:
                continue
            raise Failure(f"{box.name} was killed, and answers: {found}")

    def drop(self, kept: Kept) -> None:
        self.snapshots.remove(kept)
        kills = self.lives.life()[0]
        try:
            self.persist(lambda: self.client.snapshots.delete(kept.id))
        except NotFoundError:
            if kills == self.lives.life()[0]:
                raise
        try:
            found = self.persist(lambda: self.client.snapshots.get(kept.id))
        except NotFoundError:
            return
        raise Failure(f"snapshot {kept.name} was deleted, and is there: {found}")

    def finish(self) -> None:
        self.say("", "the end")
        for box in list(self.boxes):
            if box.status == "paused":
                self.do(box, [Op("resume", self.new_token())])
            self.look(box)
            self.kill(box)
        for kept in list(self.snapshots):
            self.copy(kept)
            if not self.boxes:
                raise Failure(f"there is no room for a copy of {kept.name}")
            self.kill(self.boxes[0])
            self.drop(kept)

    # Operations on one sandbox, one or two at the same moment

    def do(self, box: Box, ops: list[Op]) -> None:
        self.say("", f"  {box.name} ({box.status}): {' | '.join(map(str, ops))}")
        life = self.lives.life()
        if len(ops) == 1:
            self.call(box, ops[0])
        else:
            with ThreadPoolExecutor(len(ops)) as pool:
                list(pool.map(lambda op: self.call(box, op), ops))
        there = life == self.lives.life() and life[1]
        for op in ops:
            self.judge(box, op, ops, there)
            self.count(f"{op.kind}: {op.outcome}")
        self.say("", f"  → {' | '.join(op.outcome for op in ops)}{'' if there else ' (the daemon was killed)'}")
        self.lives.wait_up()
        ends, passed = reached(box.states, ops)
        contexts = list(box.contexts)
        for op in ops:
            if op.kind == "branch":
                if op.value:
                    contexts.append(op.value)
                elif op.outcome == "unknown":
                    box.strays = True
            elif op.kind == "close" and op.outcome in ("done", "unknown"):
                contexts.remove(op.context)
                box.strays |= op.outcome == "unknown"
        killed = any(op.kind == "kill" for op in ops)
        # What a copy may lack or have, its own look finds out: it begins with the contexts that all moments have.
        common = [c for c in contexts if all(c in dict(s.logs) for s in passed)]
        for op in ops:
            if op.kind == "fork":
                self.children(box, op, passed, common)
            elif op.kind == "snapshot":
                self.keep(box, op, passed, common)
        if killed:
            self.gone(box)
            return
        box.states, box.contexts = ends, contexts
        self.settle(box, ops, there)

    def call(self, box: Box, op: Op) -> None:
        sb = box.sandbox
        number = op.token.rpartition("-")[2]
        try:
            if op.kind == "cell":
                wait = "\nimport time; time.sleep(0.4)" if op.slow else ""
                code = f"log.append({number}){wait}\nwith open('/workspace/ran', 'a') as f: f.write('{number}\\n')"
                op.value = self.context(box, op).run_code(code)
            elif op.kind == "exec":
                op.value = sb.exec(f"echo {number} >> /workspace/ran", check=True)
            elif op.kind == "write":
                sb.filesystem.write(f"/workspace/{op.file}", text_of(op.token))
            elif op.kind == "remove":
                sb.filesystem.remove(f"/workspace/{op.file}")
            elif op.kind == "branch":
                op.value = self.context(box, op).fork().id
            elif op.kind == "close":
                self.context(box, op).close()
            elif op.kind == "snapshot":
                op.value = sb.snapshot(op.token, carry_running=op.carry)
            elif op.kind == "fork":
                op.value = sb.fork(metadata={"of": op.token}, carry_running=op.carry)
            elif op.kind == "hibernate":
                sb.hibernate(carry_running=op.carry)
            elif op.kind == "ttl":
                sb.set_ttl(3600)
            else:
                getattr(sb, op.kind)()
            op.outcome = "done"
        except Exception as e:
            op.error = e

    def context(self, box: Box, op: Op) -> Any:
        default = box.sandbox.context()
        return type(default)(self.client, box.sandbox.id, op.context)

    def judge(self, box: Box, op: Op, ops: list[Op], there: bool) -> None:
        """Says what an operation's answer means, and whether it may be that."""
        kinds = {o.kind for o in ops}
        e = op.error
        what = f"{op} of {box.name} ({box.status})"
        if e is None:
            if op.kind == "cell" and (op.value.error or op.value.end != "ok"):
                if "kill" not in kinds:
                    raise Failure(f"{what}: {op.value}")
                op.outcome = "unknown"
            if len(ops) == 1 and there and op.kind != "kill" and box.status not in LEAVES[op.kind]:
                raise Failure(f"{what} was not refused")
            return
        if isinstance(e, NotFoundError) and op.kind == "remove" and "kill" not in kinds:
            # There is no such file: so it may be, or the answer of the first try was lost.
            if there and all(op.file in dict(s.files) for s in box.states) and not kinds & {"write"} and len(kinds) == len(ops):
                raise Failure(f"{what}: {e}") from e
            op.outcome = "unknown"
        elif isinstance(e, NotFoundError) and "kill" in kinds:
            op.outcome = "unknown"
        elif isinstance(e, APIConnectionError) and not there:
            op.outcome = "unknown"
        elif isinstance(e, (CapacityError, RateLimitError)):
            self.count(f"no room: {e.code}")
            op.outcome = "refused" if there else "unknown"
        elif isinstance(e, ConflictError):
            held = box.status == "paused" or kinds & {"pause", "kill"} or "resume" in kinds and (box.status == "hibernated" or "hibernate" in kinds)
            carried = any(o.kind == "hibernate" and o.carry for o in ops)
            if len(ops) == 1 and there and box.status in LEAVES.get(op.kind, STAYS) or not (held or carried or not there or len(ops) == 1):
                raise Failure(f"{what} among {sorted(kinds)} was refused: {e}") from e
            # A cell or a command that runs when its sandbox is held or put to sleep goes on later.
            op.outcome = "unknown" if not there or op.kind in ("cell", "exec") and (held or carried) and len(ops) > 1 else "refused"
        else:
            raise Failure(f"{what} among {sorted(kinds)}: {type(e).__name__} {getattr(e, 'status_code', None)}: {e}") from e

    def children(self, parent: Box, op: Op, states: set[State], contexts: list[str]) -> None:
        found = [op.value] if op.value else []
        if op.outcome == "unknown":
            found = self.persist(lambda: self.client.sandboxes.list(metadata={"of": op.token}))
        for sb in found:
            box = self.add(Box(sb, set(states), "running", list(contexts), parent.strays))
            self.look(box)

    def keep(self, parent: Box, op: Op, states: set[State], contexts: list[str]) -> None:
        id = op.value
        if op.outcome == "unknown":
            id = next((s for s in self.persist(self.client.snapshots.list) if s.raw.get("name") == op.token), None)
        if id:
            self.snapshots.append(Kept(str(id), set(states), list(contexts), parent.strays, f"{parent.name}@{op.token}"))
            self.say("", f"  {self.snapshots[-1].name} = {id}")

    def settle(self, box: Box, ops: list[Op], there: bool) -> None:
        """Sees that its status is one that the operations leave it in."""
        may = set()
        for order in itertools.permutations(ops):
            now = {box.status}
            for op in order:
                after = {LEAVES[op.kind].get(s, s) for s in now}
                now = after if op.outcome == "done" and len(ops) == 1 else after | now
            may |= now
        deadline = time.monotonic() + SETTLE
        while (status := self.persist(box.sandbox.refresh).status) not in may:
            if status in LEAVES["ttl"] or status == "failed" or time.monotonic() > deadline:
                raise Failure(f"{box.name} was {box.status} and is {status} after {' | '.join(map(str, ops))}, not one of {sorted(may)}: {box.sandbox.info}")
            time.sleep(0.05)
        box.status = status

    # What it holds

    def look(self, box: Box) -> None:
        """Compares all that a sandbox holds with what it must hold."""
        self.say("", f"  look at {box.name} ({box.status})")
        if box.status == "paused":
            return
        seen = self.persist(lambda: self.see(box))
        self.count("look")
        if box.strays:
            extra = {c for c, _ in seen.logs} - set().union(*({c for c, _ in s.logs} for s in box.states))
            known = {log for s in box.states for _, log in s.logs}
            for c, log in seen.logs:
                if c in extra:
                    if not any(log == k[: len(log)] for k in known):
                        raise Failure(f"a copy of a context in {box.name} holds {log}, none of {known}")
                    self.persist(type(box.sandbox.context())(self.client, box.sandbox.id, c).close)
            seen = seen._replace(logs=frozenset((c, log) for c, log in seen.logs if c not in extra))
        if seen not in box.states:
            raise Failure(f"{box.name} holds\n{show(seen)}\nand not\n" + "\nnor\n".join(map(show, box.states)))
        box.states, box.strays, box.status = {seen}, False, "running"
        there = dict(seen.logs)
        box.contexts = [c for c in box.contexts if c in there] + sorted(c for c in there if c not in box.contexts)

    def see(self, box: Box) -> State:
        sb, logs, files = box.sandbox, set(), set()
        deadline = time.monotonic() + SETTLE
        while any(p.running for p in sb.commands.list()):  # a copy of a moment in which one ran goes on with it
            if time.monotonic() > deadline:
                raise Failure(f"a command in {box.name} does not end: {sb.commands.list()}")
            time.sleep(0.05)
        for c in sb.contexts():
            done = c.run_code("print(*log)")
            if done.error or done.end != "ok":
                raise Failure(f"looking into {c.id} of {box.name}: {done}")
            logs.add((c.id, tuple(map(int, done.stdout.split()))))
        for f in sb.filesystem.list("/workspace"):
            files.add((f.name, sb.filesystem.read_text(f"/workspace/{f.name}")))
        return State(frozenset(logs), frozenset(files))

    def persist(self, call: Callable[[], Any]) -> Any:
        """A call that may be made again, made until the daemon was there all the time."""
        while True:
            life = self.lives.life()
            try:
                return call()
            except (APIConnectionError, CapacityError) as e:
                if life == self.lives.life() and life[1]:
                    raise Failure(f"{type(e).__name__} {e.status_code}: {e}") from e
                self.count(f"again: {type(e).__name__}")
                self.lives.wait_up()

    def count(self, what: str) -> None:
        with self.lives.progress:
            self.lives.counts[what] += 1

    def say(self, n: object, words: str) -> None:
        self.history.append(f"{n:>4} {words}")


def pick(list_: list, which: float) -> Any:
    return list_[int(which * len(list_))] if list_ else None


def reached(states: set[State], ops: list[Op]) -> tuple[set[State], set[State]]:
    """The states that operations end in, done in any order, and all on the way."""
    ends, passed = set(), set(states)
    for order in itertools.permutations(ops):
        now = set(states)
        for op in order:
            effect = op.effect()
            if effect and op.outcome != "refused":
                after = {effect(s) for s in now}
                now = after if op.outcome == "done" else after | now
            passed |= now
        ends |= now
    return ends, passed


def show(s: State) -> str:
    files = {f: v if f == "ran" else v[:8] + f"({len(v)})" for f, v in sorted(s.files)}
    return f"  {dict(sorted(s.logs))}\n  {files}"


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=300, help="(300)")
    p.add_argument("--seed", type=int, default=random.randrange(1 << 30), help="another one each time")
    p.add_argument("--users", type=int, default=2, help="each with two sandboxes (2)")
    a = p.parse_args()
    print(f"--seed {a.seed}", flush=True)
    lives = Lives(a.seed, a.users).run(a.seconds)
    if not lives.failures:
        print(lives.report())
    return 1 if lives.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
