from .base import ActionMode, Task, ToolType, get_task_iterator
from . import shapes, web

__all__ = ["ActionMode", "Task", "ToolType", "get_task_iterator", "shapes", "web"]
