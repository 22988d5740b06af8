"""The interpreter side of a PandaStack kernel.

The guest agent starts one *zygote* (``python -m pandastack_kernel.zygote``), which imports everything once and then
only forks. Each fork is a *context*: an IPython shell that runs cells for the agent over a socket. The messages are
described in PROTOCOL.md beside this package.

No part of it starts a thread, opens a network connection, or reads the host: whatever needs threads (drawing plotly
and altair charts as pictures) runs in a helper process of its own.
"""
