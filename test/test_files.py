"""Files in and out: any bytes, any size, no half-written ones."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from daemon import BIN, Daemon
from pandastack import BadRequestError, CapacityError, ConflictError, NotFoundError, PandastackError, Sandbox


def test_every_byte_survives(shared_sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 257
    shared_sandbox.filesystem.write("/workspace/deep/er/b.bin", data)
    assert shared_sandbox.filesystem.read("/workspace/deep/er/b.bin") == data


@pytest.mark.parametrize("size", [0, 1, 18 << 10, 96 << 10, 1 << 20, 33 << 20])
def test_sizes_at_which_others_lose_data(shared_sandbox: Sandbox, size: int) -> None:
    data = os.urandom(size)
    shared_sandbox.filesystem.write("/workspace/sized", data)
    assert hashlib.sha256(shared_sandbox.filesystem.read("/workspace/sized")).digest() == hashlib.sha256(data).digest()
    out = shared_sandbox.exec("sha256sum /workspace/sized").stdout.split()[0]
    assert out == hashlib.sha256(data).hexdigest(), "the program in the sandbox sees the same bytes"


def test_upload_and_download_stream(shared_sandbox: Sandbox, tmp_path: Path) -> None:
    src, dst = tmp_path / "src", tmp_path / "dst"
    src.write_bytes(os.urandom(3 << 20))
    shared_sandbox.filesystem.upload(str(src), "/workspace/up.bin")
    shared_sandbox.filesystem.download("/workspace/up.bin", str(dst))
    assert dst.read_bytes() == src.read_bytes()


def test_names_are_not_ascii(shared_sandbox: Sandbox) -> None:
    path = "/workspace/数据 und Ümläute 🎉.csv"
    shared_sandbox.filesystem.write(path, "ä,b\n1,2\n")
    assert "数据 und Ümläute 🎉.csv" in [e.name for e in shared_sandbox.filesystem.list("/workspace")]
    assert shared_sandbox.run_code(f"open({path!r}, encoding='utf8').read()").text == repr("ä,b\n1,2\n")


@pytest.mark.parametrize("path", ["relative.txt", "", "/nul\0byte"])
def test_bad_paths_name_the_field(shared_sandbox: Sandbox, path: str) -> None:
    with pytest.raises((BadRequestError, ValueError)) as e:
        shared_sandbox.filesystem.read(path)
    assert "path" in str(e.value)


def test_missing_file_is_404_with_near_names(shared_sandbox: Sandbox) -> None:
    shared_sandbox.filesystem.write("/workspace/sales.csv", "a\n")
    with pytest.raises(NotFoundError) as e:
        shared_sandbox.filesystem.read("/workspace/sale.csv")
    assert "sales.csv" in str(e.value)
    assert shared_sandbox.filesystem.exists("/workspace/sale.csv") is False


def test_a_fifo_does_not_hang_a_read(shared_sandbox: Sandbox) -> None:
    shared_sandbox.exec("mkfifo /workspace/fifo")
    with pytest.raises(BadRequestError):
        shared_sandbox.filesystem.read("/workspace/fifo")


def test_stat_tells_links_as_links(shared_sandbox: Sandbox) -> None:
    shared_sandbox.exec("echo hi > /workspace/target; ln -sf target /workspace/link; chmod 640 /workspace/target")
    assert shared_sandbox.filesystem.stat("/workspace/link").mode == "l"
    assert shared_sandbox.filesystem.stat("/workspace/target").permissions == "0640"


def test_writing_keeps_the_mode_of_what_was_there(shared_sandbox: Sandbox) -> None:
    shared_sandbox.exec("printf '#!/bin/sh\\necho one\\n' > /workspace/run.sh; chmod 755 /workspace/run.sh")
    shared_sandbox.filesystem.write("/workspace/run.sh", "#!/bin/sh\necho two\n")
    assert shared_sandbox.exec("/workspace/run.sh").stdout == "two\n"


def test_a_full_disk_answers_507_and_keeps_the_old_file(sandbox: Sandbox) -> None:
    sandbox.filesystem.write("/workspace/old", "old")
    free = int(sandbox.exec("df --output=avail -B1 /workspace | tail -1").stdout)
    sandbox.exec(f"fallocate -l {free - (4 << 20)} /workspace/filler", timeout_seconds=120, check=True)
    with pytest.raises(PandastackError) as e:
        sandbox.filesystem.write("/workspace/old", bytes(16 << 20))
    assert e.value.status_code == 507
    assert sandbox.filesystem.read("/workspace/old") == b"old"


class Zeros:
    """A local file of so many bytes that takes no memory."""

    def __init__(self, size: int) -> None:
        self.left = size

    def read(self, size: int = -1) -> bytes:
        size = min(self.left, size)
        self.left -= size
        return bytes(size)


def test_an_upload_larger_than_the_disk_leaves_nothing(sandbox: Sandbox) -> None:
    free = int(sandbox.exec("df --output=avail -B1 /workspace | tail -1").stdout)
    sandbox.exec(f"fallocate -l {free - (8 << 20)} /workspace/filler", timeout_seconds=120, check=True)
    for _ in range(3):  # or the first would leave no room for the next
        with pytest.raises(PandastackError) as e:
            sandbox.filesystem.write("/workspace/new/large", Zeros(64 << 20))
        assert e.value.status_code == 507
    assert sandbox.exec("ls -A /workspace/new").stdout == ""
    sandbox.filesystem.write("/workspace/new/small", Zeros(4 << 20))


def test_large_files_take_no_memory_on_the_way(daemon: Daemon, shared_sandbox: Sandbox, tmp_path: Path) -> None:
    size = 192 << 20
    with daemon.takes_less_than(128):
        assert shared_sandbox.filesystem.write("/workspace/large", Zeros(size)).bytes == size
        assert shared_sandbox.filesystem.download("/workspace/large", tmp_path / "large") == size
    shared_sandbox.filesystem.remove("/workspace/large")


def test_what_a_file_is_in_letters_names_and_numbers(shared_sandbox: Sandbox) -> None:
    sb = shared_sandbox
    sb.exec("cd /workspace; echo hi > told; chown nobody:root told; chmod 4750 told; touch -d @1700000000.5 told; ln -sf /nowhere dangling; mkfifo -m 600 told.fifo")
    told = sb.filesystem.stat("/workspace/told")
    assert (told.mode, told.permissions, told.symbolic, told.size) == ("f", "4750", "-rwsr-x---", 3)
    assert (told.owner, told.group, told.gid) == ("nobody", "root", 0) and told.mtime.timestamp() == 1700000000.5
    dangling = sb.filesystem.stat("/workspace/dangling")
    assert (dangling.mode, dangling.target, dangling.is_dir) == ("l", "/nowhere", False) and sb.filesystem.exists("/workspace/dangling")
    assert sb.filesystem.stat("/workspace/told.fifo").symbolic == "prw-------"
    assert sb.filesystem.stat("/workspace").symbolic[0] == "d"
    listed = {e.name: e for e in sb.filesystem.list("/workspace")}
    assert listed["told"] == told and listed["dangling"].target == "/nowhere"


def test_permissions_and_appends(shared_sandbox: Sandbox) -> None:
    fs = shared_sandbox.filesystem
    fs.write("/workspace/made/tool", "#!/bin/sh\necho one\n", mode=0o755)
    fs.write("/workspace/made/tool", b"echo two\n", append=True)
    assert shared_sandbox.exec("/workspace/made/tool").stdout == "one\ntwo\n"
    assert fs.stat("/workspace/made/tool").permissions == "0755"


def test_moves_and_removes_do_what_was_asked_and_no_more(shared_sandbox: Sandbox) -> None:
    fs = shared_sandbox.filesystem
    fs.write("/workspace/m/a", "a")
    fs.write("/workspace/m/b", "b")
    fs.mkdir("/workspace/m/deep/er")
    fs.mkdir("/workspace/m/deep/er")
    with pytest.raises(ConflictError):
        fs.move("/workspace/m/a", "/workspace/m/b")
    fs.move("/workspace/m/a", "/workspace/m/b", overwrite=True)
    assert fs.read_text("/workspace/m/b") == "a" and not fs.exists("/workspace/m/a")
    fs.move("/workspace/m/b", "/dev/shm/other/b")  # another file system
    assert fs.read_text("/dev/shm/other/b") == "a"
    fs.move("/workspace/m/deep", "/workspace/moved/deep")
    with pytest.raises(ConflictError):
        fs.move("/workspace/moved/deep/er", "/workspace/moved/deep", overwrite=True)
    with pytest.raises(BadRequestError):
        fs.move("/workspace/moved", "/workspace/moved/deep/in")
    with pytest.raises(ConflictError):
        fs.remove("/workspace/moved")
    assert fs.exists("/workspace/moved/deep/er")
    fs.remove("/workspace/moved", recursive=True)
    with pytest.raises(NotFoundError):
        fs.remove("/workspace/moved", recursive=True)


def test_ranges(daemon: Daemon, shared_sandbox: Sandbox) -> None:
    shared_sandbox.filesystem.write("/workspace/digits", "0123456789")

    def get(span: str) -> tuple[int, str, str | None]:
        url = f"{daemon.url}/v1/sandboxes/{shared_sandbox.id}/fs?path=/workspace/digits"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {daemon.key}", "Range": span})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read().decode(), answer.headers["Content-Range"]
        except urllib.error.HTTPError as error:
            return error.code, "", error.headers["Content-Range"]

    assert get("bytes=2-4") == (206, "234", "bytes 2-4/10")
    assert get("bytes=7-") == (206, "789", "bytes 7-9/10")
    assert get("bytes=-2") == (206, "89", "bytes 8-9/10")
    assert get("bytes=10-") == (416, "", "bytes */10")
    assert get("bytes=0-1,3-4") == (200, "0123456789", None)


def test_nothing_strange_hangs_or_floods(shared_sandbox: Sandbox) -> None:
    fs = shared_sandbox.filesystem
    shared_sandbox.exec("cd /workspace; ln -sfn loop loop; ln -sfn ping pong; ln -sfn pong ping; ln -sfn .. up; : > none; python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('sock')\"")
    for path in ("/dev/zero", "/dev/random", "/workspace/sock", "/workspace/loop", "/workspace/ping", "/workspace", "/proc"):
        for call in (fs.read, lambda p: fs.write(p, "x"), lambda p: fs.write(p, "x", append=True)):
            with pytest.raises(PandastackError) as e:
                call(path)
            assert e.value.status_code == 400, (path, e.value)
    assert fs.read("/workspace/none") == b"" and b"Pid:" in fs.read("/proc/self/status")
    assert fs.read("/proc/meminfo").startswith(b"MemTotal")
    with pytest.raises(PandastackError):
        fs.read("/proc/1/mem")
    with pytest.raises(PandastackError):
        fs.write("/proc/version", "x")
    assert fs.stat("/workspace/loop").mode == "l" and {"loop", "ping", "up"} <= {e.name for e in fs.list("/workspace")}
    assert sum(1 for _ in fs.walk("/workspace/up/workspace/made")) == 1
    with pytest.raises(PandastackError) as e:
        fs.remove("/proc", recursive=True)
    assert e.value.status_code == 403 and fs.exists("/etc/passwd")


def test_a_large_folder_is_listed_whole_and_removed(shared_sandbox: Sandbox) -> None:
    made = shared_sandbox.exec(["python3", "-c", "import os\nos.mkdir('/workspace/many')\nfor i in range(25000): os.symlink('x', f'/workspace/many/{i:06}')"],
                               timeout_seconds=120)
    assert made.exit_code == 0, made.stderr
    names = [e.name for e in shared_sandbox.filesystem.list("/workspace/many")]
    assert names == [f"{i:06}" for i in range(25_000)]
    shared_sandbox.filesystem.remove("/workspace/many", recursive=True)


def test_names_that_are_not_utf_8(shared_sandbox: Sandbox) -> None:
    fs = shared_sandbox.filesystem
    shared_sandbox.exec(["python3", "-c", "import os\nos.makedirs(b'/workspace/latin')\nopen(b'/workspace/latin/caf\\xe9', 'w').write('au lait')"], check=True)
    (entry,) = fs.list("/workspace/latin")
    assert os.fsencode(entry.name) == b"caf\xe9"
    assert fs.read_text(entry.path) == "au lait" and fs.stat(entry.path).size == 7
    fs.write(entry.path, "noir")
    assert shared_sandbox.exec("cat /workspace/latin/caf*").stdout == "noir"
    fs.remove(entry.path)
    assert fs.list("/workspace/latin") == []


def test_a_folder_goes_in_and_comes_out(shared_sandbox: Sandbox, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "a" / "b ü").mkdir(parents=True)
    (tree / "a" / "b ü" / "big").write_bytes(os.urandom(3_000_000))
    (tree / "a" / "run").write_text("#!/bin/sh\necho ran\n")
    (tree / "a" / "run").chmod(0o755)
    (tree / "link").symlink_to("a/run")
    os.utime(tree / "a" / "run", (1_000_000_000, 1_000_000_000))
    os.mkfifo(tree / "fifo")
    seen: list[int] = []
    sent = shared_sandbox.filesystem.upload_dir(tree, "/workspace/tree", on_progress=lambda c: seen.append(c.bytes))
    assert (sent.files, sent.folders, sent.links, sent.left_out) == (2, 2, 1, ("fifo",)) and seen == sorted(seen) and seen[-1] == sent.bytes
    assert shared_sandbox.exec("./link; stat -c '%a %Y' a/run", cwd="/workspace/tree").stdout == "ran\n755 1000000000\n"
    shared_sandbox.exec("ln -s /etc/passwd out; ln -s ../../../x up; mknod fifo p; chmod u+s a/run; ln a/run hard", cwd="/workspace/tree", check=True)
    got = shared_sandbox.filesystem.download_dir("/workspace/tree", tmp_path / "back")
    assert sorted(got.left_out) == ["out", "up"] and got.files == 3
    back = tmp_path / "back"
    assert (back / "a/b ü/big").read_bytes() == (tree / "a/b ü/big").read_bytes()
    assert os.readlink(back / "link") == "a/run" and not (back / "out").is_symlink()
    assert (back / "a/run").stat().st_mode & 0o7777 == 0o755 and (back / "a/run").stat().st_mtime == 1_000_000_000
    with pytest.raises(NotFoundError):
        shared_sandbox.filesystem.download_dir("/workspace/no such folder", tmp_path / "none")
    with pytest.raises(NotADirectoryError):
        shared_sandbox.filesystem.upload_dir(tree / "a/run", "/workspace/x")


def test_a_folder_that_the_disk_has_no_room_for(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    for i in range(6):
        (tmp_path / "big" / f"{i}").write_bytes(b"x" * 10_000_000)
    with Sandbox.create(template="code-interpreter", disk_mb=40, ttl_seconds=300, api_url=daemon.url, api_key=daemon.key) as sb:
        with pytest.raises(CapacityError, match=r"disk of the sandbox is full; by then [1-4] files with \d+ bytes were written") as e:
            sb.filesystem.upload_dir(tmp_path / "big", "/workspace/big")
        assert e.value.status_code == 507
        assert sb.exec("ls -A /workspace/big | grep -c part").stdout == "0\n", "nothing half is left"


@pytest.mark.slow
def test_a_gigabyte_through_cp_both_ways(daemon: Daemon, tmp_path: Path) -> None:
    """As a folder, with the command line; the daemon holds none of it."""
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    digests = {}
    block = os.urandom(1 << 20)
    for i in range(4):
        digest = hashlib.sha256()
        with open(tree / "sub" / f"{i}", "wb") as file:
            for j in range(256):
                piece = block[i * 1000 + j:] + block[:i * 1000 + j]
                digest.update(piece)
                file.write(piece)
        digests[f"{i}"] = digest.hexdigest()
    with Sandbox.create(template="code-interpreter", disk_mb=3000, ttl_seconds=600, api_url=daemon.url, api_key=daemon.key) as sb, daemon.takes_less_than(100):
        cp = [str(BIN), "sandbox", "cp", "-r"]
        subprocess.run([*cp, str(tree), f"{sb.id}:/workspace/tree"], env=daemon.env, check=True, timeout=300)
        shutil.rmtree(tree)
        sums = dict(reversed(line.split()) for line in sb.exec("sha256sum *", cwd="/workspace/tree/sub", timeout_seconds=120).stdout.splitlines())
        assert sums == digests
        subprocess.run([*cp, f"{sb.id}:/workspace/tree", str(tmp_path / "back")], env=daemon.env, check=True, timeout=300)
        for name, want in digests.items():
            with open(tmp_path / "back" / "sub" / name, "rb") as file:
                assert hashlib.file_digest(file, "sha256").hexdigest() == want
