"""What an analyst's run loads its files with: finds out how a file is written, says what it found, and makes tables of it.

It runs inside the sandbox. What it decides becomes plain code for pandas, which is what it then runs, and what stands in the
notebook: nothing of this package is needed to do it again. So each kind of file gives code, and remarks:

    loader.py       which kind a file is of
    text.py         CSV and its like; json_files.py, excel.py, parquet.py, sqlite.py
    encodings.py    in which encoding a text is written; header.py where its table begins
    columns.py      which columns are numbers or dates; numbers.py, dates.py how they are written
    frames.py       from there to a DataFrame, or to a Parquet file where it is too large for one
    recipe.py       the code, and the variables it makes; helpers.py the functions it is written with
    describe.py     what is said of the columns of a table
"""

from .errors import Unreadable
from .loader import Loader, load

__all__ = ["Loader", "Unreadable", "load"]
