# Generated from ../_async/__init__.py by tools/generate_sync.py: change that file, then run the tool.
"""The synchronous surface. It is generated: tools/generate_sync.py."""
