"""What libraries are made of outlives every context, so that nobody need count the references to it.

Counting writes to the object, and the first write to memory that a fork shares is a copy of it: a context that only
calls a few functions would copy most of what they lie in.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import types

# Nothing of these kinds has an end that somebody waits for, as a file or a thread has.
_KINDS = (
    types.FunctionType,
    types.CodeType,
    types.ModuleType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    type,
    property,
    staticmethod,
    classmethod,
    tuple,
    frozenset,
    str,
    bytes,
    int,
    float,
)

#: The lower half of a reference count that stays as it is (PEP 683), in the versions of CPython that have it there.
_IMMORTAL = 0xFFFFFFFF
_VERSIONS = ((3, 12), (3, 13))


def make_immortal() -> int:
    """Stop counting the references to what is imported by now. Returns to how many objects; 0 in other Pythons."""
    if sys.version_info[:2] not in _VERSIONS or sys.byteorder != "little" or sys.maxsize < 1 << 32:
        return 0
    found: dict[int, object] = {}
    level = gc.get_objects()
    while level:
        # By type(), because __class__ of a proxy may run anything.
        level = [one for one in gc.get_referents(*level) if id(one) not in found and issubclass(type(one), _KINDS)]
        found.update((id(one), one) for one in level)
    for address in found:
        ctypes.c_uint32.from_address(address).value = _IMMORTAL
    return len(found)
