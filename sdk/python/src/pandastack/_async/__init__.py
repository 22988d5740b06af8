"""The asynchronous surface. It is the source of the synchronous one: see tools/generate_sync.py."""
