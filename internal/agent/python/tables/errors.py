"""What the reader raises."""


class Unreadable(Exception):
    """A file that no table can be made of; the words say why, and what to do."""
