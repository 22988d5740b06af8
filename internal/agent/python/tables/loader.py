"""Which kind a file is of, and what came of it."""

import json
import os
import time
from stat import S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFMT, S_IFSOCK

from . import excel, json_files, kinds, parquet, sqlite, text
from .errors import Unreadable
from .recipe import Recipe

TABLES = "application/vnd.pandastack.tables+json"


class Loader:
    """Makes tables of files, in the namespace of a context, and says what it found.

    memory: bytes that the sandbox has, as it says when left out; folder: where files are whose path is not absolute.
    """

    def __init__(self, space, say=print, memory=None, folder="/workspace"):
        self.recipe = Recipe(space, memory or memory_of_sandbox(), folder)
        self.say, self.tables = say, []

    def load(self, path):
        """Tables of one file. Raises Unreadable."""
        full = os.path.join(self.recipe.folder, path)
        before = found(path, full)
        began = time.monotonic()
        try:
            made = self._tables(path, full, before.st_size)
        except Exception as error:
            self._unchanged(path, full, before, error)
            raise
        self._unchanged(path, full, before, None)
        for table in made:
            table.update(file=path, seconds=round(time.monotonic() - began, 2), bytes=before.st_size)
            self.tables.append(table)
            rows = f"{table['rows']:,} rows, {table.pop('width'):,} columns"
            self.say(f"{table['name']}: {path}, {rows}" + (", stays on disk" if table["on_disk"] else ""))
            for note in table["notes"]:
                self.say(f"  {note}")
        return made

    def _tables(self, path, full, size):
        with open(full, "rb") as file:
            start = file.read(4096)
        if kind := kinds.of_no_use(start, path):
            raise Unreadable(f"{path} is {kind}")
        if start.startswith(b"PAR1"):
            return parquet.tables(self.recipe, full)
        if start.startswith(b"SQLite format 3\0"):
            return sqlite.tables(self.recipe, full, size, self.say)
        if start.startswith(b"PK"):
            return excel.tables(self.recipe, full)
        if path.lower().endswith((".json", ".jsonl", ".ndjson")) or start.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"[", b"{"):
            return json_files.tables(self.recipe, full, size)
        return text.tables(self.recipe, full, size, self.say)

    @staticmethod
    def _unchanged(path, full, before, error):
        """What was read of a file that became another meanwhile is half of each."""
        try:
            now = os.stat(full)
        except FileNotFoundError:
            raise Unreadable(f"{path} vanished while it was read: put it back, and load it again") from error
        if (now.st_ino, now.st_size, now.st_mtime_ns) != (before.st_ino, before.st_size, before.st_mtime_ns):
            raise Unreadable(f"{path} was changed while it was read: load it again when nobody writes to it any more, or load a copy of it") from error

    def source(self):
        """The code of all that was loaded, as a cell."""
        return self.recipe.source(self.tables)


def found(path, full):
    """The stat of a regular file that can be read. Raises Unreadable."""
    try:
        stat = os.stat(full)
        if kind := SPECIAL.get(S_IFMT(stat.st_mode)):
            raise Unreadable(f"{path} is {kind}")
        with open(full, "rb"):
            pass
    except FileNotFoundError:
        if os.path.islink(full):
            raise Unreadable(f"{path} is a link to {os.readlink(full)}, which is not there: name the file itself") from None
        raise Unreadable(f"there is no file {path}: upload it, or name it by its path below {os.path.dirname(full) or '/'}") from None
    except PermissionError:
        raise Unreadable(f"{path} may not be read by the user that runs code: let it, with chmod a+r, also on the folders above it") from None
    except OSError as error:  # too long a name, a circle of links, a file where a folder should be
        raise Unreadable(f"{path} cannot be opened: {error.strerror}") from None
    if stat.st_size == 0:
        raise Unreadable(f"{path} is empty: upload it again, if it should not be")
    return stat


SPECIAL = {
    S_IFDIR: "a folder: name the files in it",
    S_IFIFO: "a pipe: write what comes out of it to a file, and name that",
    S_IFSOCK: "a socket: write what comes out of it to a file, and name that",
    S_IFCHR: "a device: copy what is wanted of it to a file, and name that",
    S_IFBLK: "a device: copy what is wanted of it to a file, and name that",
}


def memory_of_sandbox():
    with open("/proc/meminfo") as info:
        return int(info.readline().split()[1]) << 10


def load(shell, paths):
    """Loads files into a context's variables, and publishes what came of it."""
    loader, failed = Loader(shell.user_ns), []
    for path in paths:
        try:
            loader.load(path)
        except Unreadable as error:
            failed.append({"file": path, "error": str(error)})
        except MemoryError:
            failed.append({"file": path, "error": f"{path} takes more memory than the sandbox has: give it more (memory_mb)"})
        except Exception as error:  # of a reader that was given nonsense; whoever asked is told
            failed.append({"file": path, "error": f"{path} cannot be read: {type(error).__name__}: {str(error)[:300]}"})
    for entry in failed:
        print(entry["error"])
    shell.display_pub.publish({TABLES: json.dumps({"tables": loader.tables, "failed": failed, "code": loader.source()}, default=str)}, {})
