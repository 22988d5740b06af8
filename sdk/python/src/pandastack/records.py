"""What the server says about its objects: one class a kind, each read from JSON by its `from_wire`."""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union
from urllib.parse import urlsplit

__all__ = [
    "AgentEvent",
    "AgentInfo",
    "Candidate",
    "ContextInfo",
    "ExecResult",
    "Exploration",
    "FileInfo",
    "ImportedSnapshot",
    "LifeEvent",
    "Lifecycle",
    "NetworkEvent",
    "NetworkInfo",
    "Outcome",
    "Port",
    "ProcessInfo",
    "SandboxInfo",
    "SnapshotID",
    "SnapshotOrigin",
    "TemplateInfo",
    "Token",
    "WriteResult",
]


def _time(value: Any) -> Optional[datetime]:
    """An RFC 3339 time as an aware datetime; None for none, and for the zero time."""
    if not isinstance(value, str) or not value or value.startswith("0001-01-01"):
        return None
    text = value[:-1] + "+00:00" if value.endswith(("Z", "z")) else value
    head, dot, rest = text.partition(".")
    if dot:  # Go writes 1 to 9 digits, Python 3.9 reads 3 or 6
        digits = len(rest) - len(rest.lstrip("0123456789"))
        text = head + "." + rest[:digits][:6].ljust(6, "0") + rest[digits:]
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)


@dataclass(frozen=True)
class LimitHits:
    """How often a sandbox met each limit, since it was created or last woke.

    Attributes:
        cpu: periods of 100 ms in which it used up its share; cpu_seconds: that its threads were held back, added up.
        memory_mb: cells that got a MemoryError, contexts and commands that were ended for their memory or refused.
        disk_mb: writes refused (ENOSPC).
        pids: processes and threads refused (EAGAIN).
    """

    cpu: int = 0
    cpu_seconds: float = 0.0
    memory_mb: int = 0
    disk_mb: int = 0
    pids: int = 0

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "LimitHits":
        return LimitHits(
            cpu=body.get("cpu") or 0,
            cpu_seconds=body.get("cpu_seconds") or 0.0,
            memory_mb=body.get("memory_mb") or 0,
            disk_mb=body.get("disk_mb") or 0,
            pids=body.get("pids") or 0,
        )


@dataclass(frozen=True)
class Usage:
    """What a sandbox uses.

    Attributes:
        at: when that was, an aware datetime.
        cpu_percent: of one core, since the server's last look or the creation. cpu_seconds: since the creation.
        memory_bytes: of the host, everything included. disk_bytes: in the writable layer.
        processes: processes and threads inside.
        limit_hits: how often each limit was met.
    """

    at: Optional[datetime] = None
    cpu_percent: float = 0.0
    cpu_seconds: float = 0.0
    memory_bytes: int = 0
    disk_bytes: int = 0
    processes: int = 0
    limit_hits: LimitHits = field(default_factory=LimitHits)

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "Usage":
        return Usage(
            at=_time(body.get("at")),
            cpu_percent=body.get("cpu_percent") or 0.0,
            cpu_seconds=body.get("cpu_seconds") or 0.0,
            memory_bytes=body.get("memory_bytes") or 0,
            disk_bytes=body.get("disk_bytes") or 0,
            processes=body.get("processes") or 0,
            limit_hits=LimitHits.from_wire(body.get("limit_hits") or {}),
        )


@dataclass(frozen=True)
class Metrics:
    """What a sandbox may use and uses.

    Attributes:
        pid: of the process on the host that holds it; threads, host_rss_bytes, host_vsz_bytes: of that process.
        uptime_seconds: since its creation.
        host_cpu_percent: of one core.
        limits: "cpu" (cores), "memory_mb", "disk_mb" and "pids".
        usage: what it uses of them.
        raw: the whole answer as it came.
    """

    pid: int = 0
    uptime_seconds: float = 0.0
    host_cpu_percent: float = 0.0
    host_rss_bytes: int = 0
    host_vsz_bytes: int = 0
    threads: int = 0
    limits: Dict[str, float] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    raw: Dict[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "Metrics":
        return Metrics(
            pid=body.get("pid") or 0,
            uptime_seconds=body.get("uptime_seconds") or 0.0,
            host_cpu_percent=body.get("host_cpu_percent") or 0.0,
            host_rss_bytes=body.get("host_rss_bytes") or 0,
            host_vsz_bytes=body.get("host_vsz_bytes") or 0,
            threads=body.get("threads") or 0,
            limits=dict(body.get("limits") or {}),
            usage=Usage.from_wire(body.get("usage") or {}),
            raw=dict(body),
        )


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as the server last described it.

    Attributes:
        id: its id.
        template: the template it was made from.
        status: "creating", "running", "paused", "hibernated", "stopping", "deleted" or "failed".
        metadata: the strings it was created with.
        cpu: cores. memory_mb, disk_mb: limits in MiB; `disk_mb` bounds what it may write. pids: processes and threads.
        usage: what it uses of them, after `Sandbox.get` and `refresh` while it lives, else None.
        persistent: hibernate instead of kill when its time is up.
        ttl_seconds: its budget, from creation or the last `set_ttl`.
        idle_timeout_seconds: hibernates when nobody called for so long, None for never.
        created_at, expires_at: aware datetimes, None when unknown.
        from_snapshot: the snapshot it was made from, or None.
        driver: "gvisor" and the like.
        forked_from: the sandbox it is a copy of, or None.
        boot_ms: milliseconds from the request to a sandbox that answers; boot_mode: "pool", "prepared", "cold" or "wake".
        end_reason: why it no longer runs ("killed", "ttl", "oom", "crashed"), or None.
        generation: goes up at every restore.
        capabilities: what this sandbox can do beyond the ordinary, such as "pause".
        network: what it may reach, None when the server doesn't say.
        preview_host: its ports are seen at "{port}-{id}.{preview_host}"; None when the server doesn't say.
        raw: the whole description as it came.
    """

    id: str
    template: str = ""
    status: str = "unknown"
    metadata: Dict[str, str] = field(default_factory=dict)
    cpu: Optional[float] = None
    memory_mb: Optional[int] = None
    disk_mb: Optional[int] = None
    pids: Optional[int] = None
    usage: Optional[Usage] = None
    persistent: bool = False
    ttl_seconds: Optional[int] = None
    idle_timeout_seconds: Optional[int] = None
    created_at: Optional[datetime] = None
    expires_at: Optional[datetime] = None
    from_snapshot: Optional[str] = None
    forked_from: Optional[str] = None
    driver: Optional[str] = None
    boot_ms: Optional[float] = None
    boot_mode: Optional[str] = None
    end_reason: Optional[str] = None
    generation: Optional[int] = None
    capabilities: List[str] = field(default_factory=list)
    network: "Optional[NetworkInfo]" = None
    preview_host: Optional[str] = None
    raw: Dict[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "SandboxInfo":
        return SandboxInfo(
            id=str(body["id"]),
            template=body.get("template") or "",
            status=body.get("status") or "unknown",
            metadata=dict(body.get("metadata") or {}),
            cpu=body.get("cpu"),
            memory_mb=body.get("memory_mb"),
            disk_mb=body.get("disk_mb"),
            pids=body.get("pids"),
            usage=Usage.from_wire(body["usage"]) if body.get("usage") else None,
            persistent=bool(body.get("persistent")),
            ttl_seconds=body.get("ttl_seconds"),
            idle_timeout_seconds=body.get("idle_timeout_seconds") or None,
            created_at=_time(body.get("created_at")),
            expires_at=_time(body.get("expires_at")),
            from_snapshot=body.get("from_snapshot") or None,
            forked_from=body.get("forked_from") or None,
            driver=body.get("driver") or None,
            boot_ms=body.get("boot_ms"),
            boot_mode=body.get("boot_mode") or None,
            end_reason=body.get("end_reason") or None,
            generation=body.get("generation"),
            capabilities=list(body.get("capabilities") or []),
            network=NetworkInfo.from_wire(body["network"]) if body.get("network") else None,
            preview_host=body.get("preview_host"),
            raw=dict(body),
        )


@dataclass(frozen=True)
class Lifecycle:
    """How long a sandbox has.

    Attributes:
        ttl_seconds: its budget in seconds, from creation or the last `set_ttl`.
        idle_timeout_seconds: seconds without a call after which it hibernates, None for never.
        persistent: hibernate instead of kill at the end.
        idle_seconds: seconds since the last call, 0 while something runs.
        expires_at: an aware datetime, None when unknown.
    """

    ttl_seconds: Optional[int]
    idle_timeout_seconds: Optional[int]
    persistent: bool
    idle_seconds: float
    expires_at: Optional[datetime]

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "Lifecycle":
        return Lifecycle(
            ttl_seconds=body.get("ttl_seconds"),
            idle_timeout_seconds=body.get("idle_timeout_seconds") or None,
            persistent=bool(body.get("persistent")),
            idle_seconds=body.get("idle_seconds") or 0.0,
            expires_at=_time(body.get("expires_at")),
        )


@dataclass(frozen=True)
class LifeEvent:
    """Something that happened to a sandbox or to the server.

    Attributes:
        id: rises, with gaps; ``after=id`` goes on behind it.
        time: an aware datetime, None when unknown.
        sandbox_id: "" for an event of the server.
        type: "created", "ready", "cell_ended", "link_lost", "expired", "killed", "ended" and others; new ones may
            appear: skip what you don't know. "gap" says that events are no longer kept.
        payload: what there is to say; the fields depend on the type.
    """

    id: int
    time: Optional[datetime]
    sandbox_id: str
    type: str
    payload: Dict[str, Any]

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "LifeEvent":
        return LifeEvent(
            id=body.get("id") or 0,
            time=_time(body.get("time")),
            sandbox_id=body.get("sandbox_id") or "",
            type=body.get("type") or "",
            payload=dict(body.get("payload") or {}),
        )


@dataclass(frozen=True)
class ContextInfo:
    """A code context as the server last described it.

    Attributes:
        id: its id. language: "python".
        state: "starting", "idle", "busy" or "dead".
        cwd: the folder it was started in.
        execution_count: cells run so far. queued: executions that wait for their turn.
        running_id: the execution in progress, or None.
        incarnation: goes up whenever the interpreter is a new one (its variables are gone then).
        created_at: an aware datetime, None when unknown.
        sandbox_id: the sandbox it is in. forked_from: the context it is a copy of, or None.
    """

    id: str
    language: str = "python"
    state: str = "unknown"
    cwd: str = ""
    execution_count: int = 0
    queued: int = 0
    running_id: Optional[str] = None
    incarnation: int = 0
    created_at: Optional[datetime] = None
    sandbox_id: str = ""
    forked_from: Optional[str] = None

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "ContextInfo":
        return ContextInfo(
            id=str(body["id"]),
            language=body.get("language") or "python",
            state=body.get("state") or "unknown",
            cwd=body.get("cwd") or "",
            execution_count=body.get("execution_count") or body.get("cells") or 0,
            queued=body.get("queued") or 0,
            running_id=body.get("running_id") or None,
            incarnation=body.get("incarnation") or 0,
            created_at=_time(body.get("created_at")),
            sandbox_id=body.get("sandbox_id") or "",
            forked_from=body.get("forked_from") or None,
        )


@dataclass(frozen=True)
class ExecResult:
    """The outcome of a command.

    Attributes:
        stdout, stderr: its output, always str.
        exit_code: its status; 128 + n when signal n ended it.
        reason: why it ended: "exited", "signaled" (by what is in `signal`, such as "SIGSEGV"), "oom" (ended because the
            sandbox ran out of memory), "killed" (through the API) or "timeout".
        duration_ms: milliseconds, None when unknown.
        truncated: True when output was left out; `stdout_dropped` and `stderr_dropped` count the bytes left out in
            the middle, `output_path` is the file in the sandbox that has the whole of it, or None.
        hint: which limit of the sandbox is behind a bad end, in words, or None.
    """

    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0
    duration_ms: Optional[float] = None
    truncated: bool = False
    stdout_dropped: int = 0
    stderr_dropped: int = 0
    output_path: Optional[str] = None
    reason: str = "exited"
    signal: Optional[str] = None
    hint: Optional[str] = None

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "ExecResult":
        return ExecResult(
            stdout=body.get("stdout") or "",
            stderr=body.get("stderr") or "",
            exit_code=body.get("exit_code") or 0,
            duration_ms=body.get("duration_ms"),
            truncated=bool(body.get("truncated")),
            stdout_dropped=body.get("stdout_dropped") or 0,
            stderr_dropped=body.get("stderr_dropped") or 0,
            output_path=body.get("output_path") or None,
            reason=body.get("reason") or "exited",
            signal=body.get("signal") or None,
            hint=body.get("hint") or None,
        )


@dataclass(frozen=True)
class ProcessInfo:
    """A process that was started through the API, as the server last described it.

    Attributes:
        pid: its number in the sandbox.
        cmd: as it was given: a shell str, or a list of arguments.
        cwd, user: where and as whom it runs.
        running: False once it has ended.
        exit_code: its status, None while it runs. reason: why it ended, as in `ExecResult`, else None.
        started_at, ended_at: aware datetimes or None.
        tag: the name it was given, or None.
        pty: the size of its terminal as (rows, cols), None without one.
        last_event: the number of the newest event of its output.
        exit: how it ended, without what it wrote, None while it runs.
    """

    pid: int
    cmd: Union[str, List[str]] = ""
    cwd: str = ""
    user: str = ""
    running: bool = True
    exit_code: Optional[int] = None
    reason: Optional[str] = None
    started_at: Optional[datetime] = None
    ended_at: Optional[datetime] = None
    tag: Optional[str] = None
    pty: Optional[Tuple[int, int]] = None
    last_event: int = 0
    exit: Optional[ExecResult] = None

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "ProcessInfo":
        exited: Mapping[str, Any] = body.get("exit") or {}
        size: Mapping[str, Any] = body.get("pty") or {}
        return ProcessInfo(
            pid=body["pid"],
            cmd=body.get("cmd") or "",
            cwd=body.get("cwd") or "",
            user=body.get("user") or "",
            running=bool(body.get("running", not exited)),
            exit_code=exited.get("exit_code"),
            reason=exited.get("reason") or None,
            started_at=_time(body.get("started_at")),
            ended_at=_time(body.get("ended_at")),
            tag=body.get("tag") or None,
            pty=(size.get("rows") or 0, size.get("cols") or 0) if size else None,
            last_event=body.get("last_event") or 0,
            exit=ExecResult.from_wire(exited) if exited else None,
        )


@dataclass(frozen=True)
class Copied:
    """What of a folder was copied.

    Attributes:
        files, folders, links: how many.
        bytes: of the files.
        left_out: the names of what was not: what is no file, folder or link, and out of a sandbox also links that lead
            out of the folder.
    """

    files: int = 0
    folders: int = 0
    links: int = 0
    bytes: int = 0
    left_out: Tuple[str, ...] = ()


@dataclass(frozen=True)
class FileEvent:
    """A change of a file that is watched.

    Attributes:
        type: "create" (new at `path`, made there or moved there from outside of what is watched), "write", "close" (a
            program that could write to it has closed it: it is whole), "rename" (`from_path` to `path`), "remove" (gone
            from `path`, removed or moved outside) or "chmod" (permissions, owner or times). "overflow" says that changes
            may be missing here: look at the files themselves. "ended" is the last one. New types may appear: skip what
            you don't know.
        path: absolute; "" for an event of the watch itself.
        is_dir: it is, or was, a folder.
        from_path: rename: the path before.
        reason: overflow: "queue" (changes came too fast), "slow" (they came faster than they were read), "folders" (there
            are more than 10,000: what is below `path` is not watched) or "lost" (the watch was no more when the connection
            was made again, and was begun anew). ended: "removed" (what was watched is gone), "hibernated" or
            "sandbox_ended".
        dropped: overflow: so many events are missing; 0 when nobody knows.
    """

    type: str
    path: str = ""
    is_dir: bool = False
    from_path: Optional[str] = None
    reason: Optional[str] = None
    dropped: int = 0

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "FileEvent":
        def path(name: str) -> Optional[str]:
            if body.get("raw_" + name):
                return base64.b64decode(body["raw_" + name]).decode("utf-8", "surrogateescape")
            return body.get(name) or None

        return FileEvent(
            type=body.get("type") or "",
            path=path("path") or "",
            is_dir=bool(body.get("is_dir")),
            from_path=path("from"),
            reason=body.get("reason") or None,
            dropped=body.get("dropped") or 0,
        )


@dataclass(frozen=True)
class FileInfo:
    """A file or folder in a sandbox.

    Attributes:
        name: its last part. path: the whole, absolute.
        is_dir: True for a folder.
        size: bytes.
        mode: the kind's letter: "f", "d", "l" (link), "p", "s", "b" or "c".
        permissions: octal, such as "0644". symbolic: as ls shows them, such as "-rw-r--r--".
        uid, gid: numbers of its owner and group. owner, group: their names in the sandbox, "" without one.
        mtime: when it was last changed, an aware datetime, None when unknown.
        target: where a symbolic link points, else None.
    """

    name: str
    path: str
    is_dir: bool = False
    size: int = 0
    mode: str = "f"
    permissions: str = ""
    uid: int = 0
    gid: int = 0
    mtime: Optional[datetime] = None
    target: Optional[str] = None
    symbolic: str = ""
    owner: str = ""
    group: str = ""

    @staticmethod
    def from_wire(body: Mapping[str, Any], *, folder: Optional[str] = None, path: Optional[str] = None) -> "FileInfo":
        """`path` is what was asked for, `folder` where an entry lies: they have the bytes that JSON can't show."""
        name = body.get("name") or (path or "").rstrip("/").rsplit("/", 1)[-1]
        if body.get("raw_name"):
            name = base64.b64decode(body["raw_name"]).decode("utf-8", "surrogateescape")
        whole = path or (folder or "").rstrip("/") + "/" + name
        return FileInfo(
            name=name,
            path=whole,
            is_dir=bool(body.get("is_dir")),
            size=body.get("size") or 0,
            mode=body.get("mode") or "",
            permissions=body.get("permissions") or "",
            uid=body.get("uid") or 0,
            gid=body.get("gid") or 0,
            mtime=_time(body.get("modified_at")),
            target=body.get("target") or None,
            symbolic=body.get("symbolic") or "",
            owner=body.get("owner") or "",
            group=body.get("group") or "",
        )


@dataclass(frozen=True)
class WriteResult:
    """What was written: the absolute `path`, and `bytes`, the count."""

    path: str
    bytes: int

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "WriteResult":
        return WriteResult(path=body.get("path") or "", bytes=body.get("bytes") or 0)


@dataclass(frozen=True)
class TemplateInfo:
    """A template that sandboxes can be made from.

    Attributes:
        name: its name. aliases: others that mean it. digest: of its recipe. description: in words.
        size_bytes: of its root filesystem.
        cpu, memory_mb, disk_mb, pids: what a sandbox of it gets when nothing is said.
        built_at: an aware datetime, None when unknown.
        rootfs_path: where it is on the server. is_global: True for one of all workspaces. meta: what its recipe says besides.
        raw: the whole description as it came.
    """

    name: str
    aliases: List[str] = field(default_factory=list)
    digest: str = ""
    description: str = ""
    size_bytes: int = 0
    cpu: Optional[float] = None
    memory_mb: Optional[int] = None
    disk_mb: Optional[int] = None
    pids: Optional[int] = None
    built_at: Optional[datetime] = None
    rootfs_path: str = ""
    is_global: bool = False
    meta: Dict[str, str] = field(default_factory=dict)
    raw: Dict[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "TemplateInfo":
        return TemplateInfo(
            name=body["name"],
            aliases=list(body.get("aliases") or []),
            digest=body.get("digest") or "",
            description=body.get("description") or "",
            size_bytes=body.get("size_bytes") or 0,
            cpu=body.get("cpu"),
            memory_mb=body.get("memory_mb"),
            disk_mb=body.get("disk_mb"),
            pids=body.get("pids"),
            built_at=_time(body.get("built_at")),
            rootfs_path=body.get("rootfs_path") or "",
            is_global=bool(body.get("is_global")),
            meta=dict(body.get("meta") or {}),
            raw=dict(body),
        )


@dataclass(frozen=True)
class Token:
    """An API key.

    Attributes:
        prefix: its first characters, by which it is listed and revoked.
        label: the name it was given.
        token: the key itself, only in the answer that made it, else None.
        created_at: an aware datetime, None when unknown.
        scopes: what it may do, of "read", "run", "admin"; empty when unknown.
        workspace: whose sandboxes it reaches, "" when unknown.
        expires_at: an aware datetime, None for never.
        last_used_at: an aware datetime, None for never.
    """

    prefix: str
    label: str = ""
    token: Optional[str] = field(default=None, repr=False)
    created_at: Optional[datetime] = None
    scopes: Tuple[str, ...] = ()
    workspace: str = ""
    expires_at: Optional[datetime] = None
    last_used_at: Optional[datetime] = None

    @staticmethod
    def from_wire(body: Mapping[str, Any], *, label: str = "") -> "Token":
        return Token(
            prefix=body.get("prefix") or "",
            label=body.get("label") or label,
            token=body.get("token") or None,
            created_at=_time(body.get("created_at")),
            scopes=tuple(body.get("scopes") or ()),
            workspace=body.get("workspace") or "",
            expires_at=_time(body.get("expires_at")),
            last_used_at=_time(body.get("last_used_at")),
        )


@dataclass
class Candidate:
    """A command for `explore`.

    Attributes:
        cmd: a str for the shell, or a list of arguments.
        label: a name for it. Default: its number.
        timeout_seconds: its deadline. Default: that of the call.
    """

    cmd: Union[str, List[str]]
    label: Optional[str] = None
    timeout_seconds: Optional[float] = None


@dataclass
class Outcome:
    """What became of one candidate of `explore`.

    Attributes:
        index, label, cmd: which one it was.
        sandbox_id: the branch it ran in.
        exit_code: its status, None when it did not end; then `error` says why.
        stdout, stderr: the last 4096 characters of each.
        duration_ms: how long it ran.
        files: paths that it wrote under /workspace, /app, /work, /root and /home, 200 at most.
        score: what it was chosen by, None when it was not scored.
    """

    index: int
    label: str
    cmd: Union[str, List[str]]
    sandbox_id: str
    exit_code: Optional[int] = None
    stdout: str = ""
    stderr: str = ""
    duration_ms: float = 0.0
    files: List[str] = field(default_factory=list)
    score: Optional[float] = None
    error: Optional[str] = None


@dataclass
class Exploration:
    """What `explore` found.

    Attributes:
        winner: the branch that was chosen, a sandbox, or None.
        winner_outcome: its `Outcome`.
        outcomes: all of them, in the order of the candidates.
        tree_id: of the branches.
        reaped: ids of the branches that were ended; reap_failures: why others could not be, by id.
        errors: candidates that got no branch.
    """

    outcomes: List[Outcome]
    tree_id: Optional[str] = None
    winner: Any = None
    winner_outcome: Optional[Outcome] = None
    reaped: List[str] = field(default_factory=list)
    reap_failures: Dict[str, str] = field(default_factory=dict)
    errors: List[str] = field(default_factory=list)


def pick(outcomes: List[Outcome], select: str, require_success: bool) -> Optional[Outcome]:
    """The outcome with the best score; of equals the quickest. What has none, or NaN, is not chosen."""
    able = [o for o in outcomes if o.score is not None and not math.isnan(o.score) and (o.exit_code == 0 or not require_success)]
    sign = -1.0 if select == "max" else 1.0
    return min(able, key=lambda o: (sign * (o.score or 0.0), o.duration_ms), default=None)


@dataclass(frozen=True)
class NetworkInfo:
    """The network of a sandbox.

    Attributes:
        policy: "mode", "allow", "deny" and so on, as `network` of `Sandbox.create`.
        secrets: by host, "header" and "ref"; never a value.
        bytes: carried so far, both directions together. flows: connections that are open.
    """

    policy: Dict[str, Any] = field(default_factory=dict)
    secrets: Dict[str, Dict[str, str]] = field(default_factory=dict)
    bytes: int = 0
    flows: int = 0

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "NetworkInfo":
        return NetworkInfo(
            policy=dict(body.get("policy") or {}),
            secrets=dict(body.get("secrets") or {}),
            bytes=body.get("bytes") or 0,
            flows=body.get("flows") or 0,
        )


@dataclass(frozen=True)
class ToolInfo:
    """A function outside of a sandbox that Python inside can call.

    Attributes:
        name: "function" or "namespace.function". signature: its Python. description: what it does.
        source: "function" (of a program that is connected), "http" or "mcp".
        parameters: JSON schema of its arguments, None when it takes none.
        risky: it changes what cannot be changed back, as far as is known.
        connected: it can be reached now, as far as is known.
    """

    name: str
    source: str
    description: str
    signature: str
    parameters: Optional[Dict[str, Any]]
    risky: bool
    connected: bool

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "ToolInfo":
        return ToolInfo(
            name=body["name"],
            source=body.get("source") or "",
            description=body.get("description") or "",
            signature=body.get("signature") or "",
            parameters=body.get("parameters"),
            risky=bool(body.get("risky")),
            connected=bool(body.get("connected")),
        )


@dataclass(frozen=True)
class ToolCall:
    """A line of the log of calls.

    Attributes:
        tool: that was called. kind: "ok", or how it failed, as `ToolError.kind` inside. why: words for that.
        time: when, an aware datetime. duration_ms: how long. bytes: of the result.
        context_id, execution_id: where the call came from, as the sandbox says.
        rule: what decided that it was carried out or not. by: the key of who was asked.
        raw: the whole line as it came.
    """

    id: str
    sandbox_id: str
    tool: str
    kind: str
    time: Optional[datetime]
    duration_ms: float
    bytes: int
    context_id: Optional[str]
    execution_id: Optional[str]
    rule: str
    by: Optional[str]
    why: Optional[str]
    raw: Dict[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "ToolCall":
        return ToolCall(
            id=body.get("id") or "",
            sandbox_id=body.get("sandbox_id") or "",
            tool=body.get("tool") or "",
            kind=body.get("kind") or "",
            time=_time(body.get("time")),
            duration_ms=body.get("duration_ms") or 0.0,
            bytes=body.get("bytes") or 0,
            context_id=body.get("context_id"),
            execution_id=body.get("execution_id"),
            rule=body.get("rule") or "",
            by=body.get("by"),
            why=body.get("why"),
            raw=dict(body),
        )


@dataclass(frozen=True)
class Approval:
    """A call that waits for somebody's decision, or had one.

    Attributes:
        tool, arguments: what is to be called. host: that it reaches, None when that is not known.
        advice: what reading the cell noticed. rule: why somebody is asked.
        status: "pending", "approved", "denied", "expired" or "cancelled". reason, by, decided_at: of the decision.
        expires_at: when it is denied by itself. created_at: when it was asked. Aware datetimes.
        sandbox_id, agent_id, context_id, execution_id: where the call comes from.
    """

    id: str
    sandbox_id: str
    tool: str
    arguments: Any
    status: str
    rule: str
    agent_id: Optional[str] = None
    context_id: Optional[str] = None
    execution_id: Optional[str] = None
    host: Optional[str] = None
    advice: List[Dict[str, Any]] = field(default_factory=list)
    reason: Optional[str] = None
    by: Optional[str] = None
    created_at: Optional[datetime] = None
    expires_at: Optional[datetime] = None
    decided_at: Optional[datetime] = None

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "Approval":
        return Approval(
            id=body["id"],
            sandbox_id=body.get("sandbox_id") or "",
            tool=body.get("tool") or "",
            arguments=body.get("arguments"),
            status=body.get("status") or "",
            rule=body.get("rule") or "",
            agent_id=body.get("agent_id"),
            context_id=body.get("context_id"),
            execution_id=body.get("execution_id"),
            host=body.get("host"),
            advice=list(body.get("advice") or []),
            reason=body.get("reason"),
            by=body.get("by"),
            created_at=_time(body.get("created_at")),
            expires_at=_time(body.get("expires_at")),
            decided_at=_time(body.get("decided_at")),
        )


@dataclass(frozen=True)
class NetworkEvent:
    """One decision about what a sandbox tried to reach.

    Attributes:
        seq: rises, with gaps. time: of the attempt, an aware datetime.
        verdict: "allowed", "refused" or "failed". rule: that decided; None: none named it. reason: why not.
        protocol: "dns", "tcp", "tls", "http", "https" (opened), or what was refused as a packet.
        name: the host, where it was reached by name. address, port: the real ones.
        method, path, status: of HTTP where it can be seen.
        secret: the header that was added.
        bytes_out, bytes_in: that the sandbox sent and got. duration_ms: of the connection or the request.
        raw: the whole line as it came.
    """

    seq: int
    time: Optional[datetime]
    verdict: str
    protocol: str
    name: Optional[str] = None
    address: Optional[str] = None
    port: Optional[int] = None
    method: Optional[str] = None
    path: Optional[str] = None
    status: Optional[int] = None
    rule: Optional[str] = None
    reason: Optional[str] = None
    secret: Optional[str] = None
    bytes_out: int = 0
    bytes_in: int = 0
    duration_ms: float = 0.0
    raw: Dict[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "NetworkEvent":
        return NetworkEvent(
            seq=body.get("seq") or 0,
            time=_time(body.get("time")),
            verdict=body.get("verdict") or "",
            protocol=body.get("protocol") or "",
            name=body.get("name"),
            address=body.get("address"),
            port=body.get("port"),
            method=body.get("method"),
            path=body.get("path"),
            status=body.get("status"),
            rule=body.get("rule"),
            reason=body.get("reason"),
            secret=body.get("secret"),
            bytes_out=body.get("bytes_out") or 0,
            bytes_in=body.get("bytes_in") or 0,
            duration_ms=body.get("duration_ms") or 0.0,
            raw=dict(body),
        )


class Port(int):
    """A port of a sandbox: an int, that knows what the server says of it.

    Attributes:
        label: "" when nobody gave one.
        public: everybody who knows its address may see it.
        listening: something listens on it, as the sandbox says.
        source: "user" when somebody named it, or "detected".
        addresses: of those who listen, inside.
        url: its own address, None when the server has no name for it.
        proxy_url: below the API's address, with the key.
    """

    label: str
    public: bool
    listening: bool
    source: str
    addresses: List[str]
    url: Optional[str]
    proxy_url: Optional[str]

    @staticmethod
    def from_wire(body: Union[int, Mapping[str, Any]]) -> "Port":
        known: Mapping[str, Any] = {"port": body, "listening": True} if isinstance(body, int) else body
        made = Port(known["port"])
        made.label = known.get("label") or ""
        made.public = bool(known.get("public"))
        made.listening = bool(known.get("listening", True))
        made.source = known.get("source") or "detected"
        made.addresses = list(known.get("addresses") or [])
        made.url = known.get("url")
        made.proxy_url = known.get("proxy_url")
        return made


def preview_address(api_url: str, preview_host: Optional[str], sandbox_id: str, port: int, scheme: Optional[str]) -> str:
    """Where a port is seen. A server that does not say so is taken to be as published: below the API's host."""
    api = urlsplit(api_url)
    host = preview_host
    if not host:
        name = api.hostname or ""
        if name == "localhost" or name == "::1" or name.startswith("127."):
            host = "localhost" + (f":{api.port}" if api.port else "")
        else:
            host = name[4:] if name.startswith("api.") else name
    if scheme is None:
        scheme = "http" if host.split(":")[0] == "localhost" else api.scheme
    return f"{scheme}://{port}-{sandbox_id}.{host}/"


class SnapshotID(str):
    """A snapshot's id: a str, so that it can be given to ``Sandbox.create(from_snapshot=…)``.

    Attributes:
        id: the same as a plain str.
        name: what it is called, or None. metadata: the strings kept with it.
        sandbox_id: the sandbox it was taken of. parent_id: the snapshot that this one was made from, or None.
        workspace: whose it is. template, digest: of the template of the sandbox.
        cpu, memory_mb, disk_mb: what sandboxes made from it get when nothing is said.
        size_bytes: of what it keeps, None when unknown.
        duration_ms: milliseconds that taking it took.
        created_at: an aware datetime, None when unknown.
        expires_at: when it is removed, an aware datetime; None when it stays.
        contexts: ids of the code contexts in it, as far as the sandbox said.
        origin: where an imported one is from, whose ids `sandbox_id` and `parent_id` are then; None of one taken here.
        raw: the whole description as it came.
    """

    name: Optional[str]
    metadata: Dict[str, str]
    sandbox_id: str
    parent_id: Optional[str]
    workspace: str
    template: str
    digest: str
    cpu: Optional[float]
    memory_mb: Optional[int]
    disk_mb: Optional[int]
    size_bytes: Optional[int]
    duration_ms: Optional[float]
    created_at: Optional[datetime]
    expires_at: Optional[datetime]
    contexts: List[str]
    origin: "Optional[SnapshotOrigin]"
    raw: Dict[str, Any]

    @property
    def id(self) -> str:
        return str(self)

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "SnapshotID":
        made = SnapshotID(body["id"])
        made.name = body.get("name") or None
        made.metadata = dict(body.get("metadata") or {})
        made.sandbox_id = body.get("sandbox_id") or ""
        made.parent_id = body.get("parent_id") or None
        made.workspace = body.get("workspace") or ""
        made.template = body.get("template") or ""
        made.digest = body.get("digest") or ""
        made.cpu, made.memory_mb, made.disk_mb = body.get("cpu"), body.get("memory_mb"), body.get("disk_mb")
        made.size_bytes = body.get("size_bytes")
        made.duration_ms = body.get("duration_ms")
        made.created_at = _time(body.get("created_at"))
        made.expires_at = _time(body.get("expires_at"))
        made.contexts = list(body.get("contexts") or [])
        made.origin = SnapshotOrigin.from_wire(body["origin"]) if body.get("origin") else None
        made.raw = dict(body)
        return made


@dataclass(frozen=True)
class SnapshotOrigin:
    """Where an imported snapshot is from.

    Attributes:
        snapshot_id, workspace: its id and whose it was, there.
        key: of the server that signed the archive, as "ed25519:…". version: of that server.
        exported_at, imported_at: aware datetimes.
    """

    snapshot_id: str
    workspace: str
    key: str
    version: str
    exported_at: Optional[datetime]
    imported_at: Optional[datetime]

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "SnapshotOrigin":
        return SnapshotOrigin(
            snapshot_id=body.get("snapshot_id") or "",
            workspace=body.get("workspace") or "",
            key=body.get("key") or "",
            version=body.get("version") or "",
            exported_at=_time(body.get("exported_at")),
            imported_at=_time(body.get("imported_at")),
        )


@dataclass(frozen=True)
class ImportedSnapshot:
    """What came of an import.

    Attributes:
        snapshot: the new one, under an id of this server.
        missing: what the sandbox had and this server does not, each with ``kind`` and ``name``, and perhaps ``for``, the
            host or the tools: a "secret" of the workspace, a "value" of a header, which is never exported, a named
            network "policy", a namespace of "tools".
    """

    snapshot: SnapshotID
    missing: List[Dict[str, str]]

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "ImportedSnapshot":
        return ImportedSnapshot(SnapshotID.from_wire(body["snapshot"]), [dict(m) for m in body.get("missing") or []])


@dataclass(frozen=True)
class AgentInfo:
    """What is known of an agent's run.

    Attributes:
        status: "running", "waiting" for a decision on a call of a tool, or "ended".
        reason: why it ended: "answer", "max_turns", "max_cells", "max_seconds", "max_tokens", "max_cost", "stuck",
            "no_reply", "model_failed", "no_key", "no_sandbox", "no_data", "cancelled" or "failed".
        answer: the final answer; None without one.
        error: words for an end without an answer.
        turns, cells, rewinds: replies of the model, cells that ran, times that it was set back from a circle.
        context_id: the code context of the sandbox that has its variables.
        usage: ``input_tokens``, ``output_tokens``, ``cost_usd`` and more, as the provider counts.
        prompt: version of the system prompt.
        own_key: the model's key came with the request, and is not stored.
        replay_of: the run whose cells it runs again; None if it is no replay.
        fork_of, fork_at: the run, and the turn of it, at which this one branched off; None and 0 if it is no fork.
        follows: the run that it goes on from, in its sandbox and with its variables; None if it follows none.
        functions: names of those of a program that its code can call, which that program must be there for.
    """

    id: str
    task: str
    status: str
    workspace: str = ""
    prompt: str = ""
    model: str = ""
    dialect: str = ""
    reason: Optional[str] = None
    answer: Optional[str] = None
    error: str = ""
    sandbox_id: Optional[str] = None
    context_id: Optional[str] = None
    snapshot_id: Optional[str] = None
    turns: int = 0
    cells: int = 0
    rewinds: int = 0
    usage: Dict[str, Any] = field(default_factory=dict)
    own_key: bool = False
    replay_of: Optional[str] = None
    fork_of: Optional[str] = None
    fork_at: int = 0
    follows: Optional[str] = None
    functions: List[str] = field(default_factory=list)
    metadata: Dict[str, str] = field(default_factory=dict)
    created_at: Optional[datetime] = None
    ended_at: Optional[datetime] = None

    @staticmethod
    def from_wire(body: Mapping[str, Any]) -> "AgentInfo":
        """Reads the server's JSON."""
        return AgentInfo(
            id=str(body["id"]),
            task=body.get("task") or "",
            status=body.get("status") or "",
            workspace=body.get("workspace") or "",
            prompt=body.get("prompt") or "",
            model=body.get("model") or "",
            dialect=body.get("dialect") or "",
            reason=body.get("reason") or None,
            answer=body.get("answer"),
            error=body.get("error") or "",
            sandbox_id=body.get("sandbox_id") or None,
            context_id=body.get("context_id") or None,
            snapshot_id=body.get("snapshot_id") or None,
            turns=body.get("turns") or 0,
            cells=body.get("cells") or 0,
            rewinds=body.get("rewinds") or 0,
            usage=dict(body.get("usage") or {}),
            own_key=bool(body.get("own_key")),
            replay_of=body.get("replay_of") or None,
            fork_of=body.get("fork_of") or None,
            fork_at=body.get("fork_at") or 0,
            follows=body.get("follows") or None,
            functions=list(body.get("functions") or []),
            metadata=dict(body.get("metadata") or {}),
            created_at=_time(body.get("created_at")),
            ended_at=_time(body.get("ended_at")),
        )


@dataclass(frozen=True)
class AgentEvent:
    """Something that happened in an agent's run.

    Attributes:
        type: "started", "sandbox", "loaded", "prompt", "asked", "reply", "found", "cell", "outcome", "message", "checkpoint",
            "rewound", "resumed", "ended"; and, told while they happen and not kept, "delta" (`text`), "output" (`text`
            of a cell) and "again". New types may appear: skip what you don't know.
        seq: its number in the transcript; 0 for those that are not kept.
        turn: of the model's replies, from 1.
        text: what was said or written, for "delta", "output" and "prompt".
        data: all of it, as it came.
    """

    type: str
    seq: int = 0
    turn: int = 0
    text: str = ""
    data: Dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def from_wire(kind: str, body: Mapping[str, Any], seq: Optional[int] = None) -> "AgentEvent":
        """Reads an event's JSON; `kind` and `seq` come from the stream."""
        return AgentEvent(
            type=body.get("type") or kind,
            seq=body.get("seq") or 0,
            turn=body.get("turn") or 0,
            text=body.get("text") or "",
            data=dict(body),
        )
