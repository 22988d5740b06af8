"""What a zygote does before it says it is ready, so that no cell pays for it."""

from __future__ import annotations

#: Imported when PANDASTACK_IMPORTS is not set. Short on purpose: the size of the memory image decides how long a
#: restore takes, and these three bring 80 MB already. Everything else is imported by the cell that needs it.
DEFAULT_IMPORTS = ("numpy", "pandas", "matplotlib.pyplot")

#: Run once in the zygote after the imports, for the modules that are there: first uses that cost tens of
#: milliseconds (font cache, first figure, lazily imported parts of pandas) are made here.
ZYGOTE_CODE = """
import sys
if "pandas" in sys.modules:
    import pandas, io
    frame = pandas.read_csv(io.StringIO("a,b\\n1,x\\n2,y\\n"))
    frame.groupby("b").a.sum()
    repr(frame), frame._repr_html_(), frame.describe()
if "matplotlib.pyplot" in sys.modules:
    import io
    import matplotlib.pyplot as plt
    if "pandas" in sys.modules:
        frame.plot(title="warm Aa 中 ☺")
    else:
        plt.plot([1, 2])
        plt.title("warm Aa 中 ☺")
    plt.legend(["a"])
    plt.gcf().savefig(io.BytesIO(), bbox_inches="tight")
    plt.close("all")
"""

#: Run as cells in the zygote, and forgotten: what a first error, a first table and a first figure look up.
FIRST_CELLS = (
    "1 / 0",
    "import sys\nsys.modules['pandas'].DataFrame({'a': [1]}) if 'pandas' in sys.modules else None",
    "if 'matplotlib.pyplot' in sys.modules: sys.modules['matplotlib.pyplot'].plot([1, 2])",
    "def :",
)

#: Run in every spare before it is used, and forgotten: the pages a first cell writes to are its own afterwards.
REHEARSAL = (
    "import sys\nprint(sum(range(10)))\n1 + 1",
    "def f(x):\n    return [x]\nf('a')",
    "if 'pandas' in sys.modules: display(sys.modules['pandas'].DataFrame({'a': [1]}))",
)
