"""Imports the package of tables/ from what the cell brings along, and has it load files. Nothing of it stays."""


def _load_tables(sources, files):
    """sources: the text of each module by its file's name."""
    import importlib.abc
    import importlib.util
    import sys

    package = "pandastack_tables"

    class Sources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
        def find_spec(self, name, path=None, target=None):
            if self.file(name) in sources:
                # A path that looks like one lets tracebacks, and inspect, ask this loader for the lines.
                return importlib.util.spec_from_loader(name, self, origin=f"{package}/{self.file(name)}", is_package=name == package)

        def get_code(self, name):
            return compile(self.get_source(name), f"{package}/{self.file(name)}", "exec")

        def get_source(self, name):
            return sources[self.file(name)]

        def file(self, name):
            return "__init__.py" if name == package else name.removeprefix(package + ".") + ".py"

    finder = Sources()
    sys.meta_path.append(finder)
    try:
        import pandastack_tables

        pandastack_tables.load(get_ipython(), files)  # noqa: F821
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
