"""A language model that follows a script: it speaks chat completions and the Responses API over HTTP on loopback.

It lets examples and tests run an agent through the real client packages without a key, and it is as strict as the real
service: a request that the protocol forbids, or that does not show what the script expects, is answered with 400.
Only the standard library is used.
"""

from .script import Script, ScriptError
from .server import ScriptedModel

__all__ = ["Script", "ScriptError", "ScriptedModel"]
