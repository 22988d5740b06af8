"""Ends GNU OpenMP's worker threads before a fork, after which its next parallel region would wait for them for ever.

scikit-learn's wheels carry a libgomp; OpenBLAS, Arrow and DuckDB look after themselves (docs/decisions/0001).
"""

from __future__ import annotations

import ctypes
import sys

_PAUSE_HARD = 2

_libraries: dict[str, ctypes.CDLL] = {}
_modules_seen = 0


class _Info(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]


_Visitor = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Info), ctypes.c_size_t, ctypes.c_void_p)


def end_threads() -> None:
    """Let every loaded libgomp free the calling thread's pool; it starts a new one when next used."""
    for library in _loaded():
        try:
            library.omp_pause_resource_all(_PAUSE_HARD)
        except AttributeError:  # a libgomp older than 9
            continue


def _loaded() -> list[ctypes.CDLL]:
    global _modules_seen
    if len(sys.modules) == _modules_seen:  # nothing was imported since, so nothing was loaded
        return list(_libraries.values())
    _modules_seen = len(sys.modules)

    @_Visitor
    def visit(info: ctypes._Pointer[_Info], size: int, data: int | None) -> int:
        name = (info.contents.name or b"").decode(errors="replace")
        if "libgomp" in name.rpartition("/")[2] and name not in _libraries:
            _libraries[name] = ctypes.CDLL(name)
        return 0

    ctypes.CDLL(None).dl_iterate_phdr(visit, None)
    return list(_libraries.values())
