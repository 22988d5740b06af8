"""Kinds of files that no table is made of, by their first bytes, and what to do with each."""

import re

KINDS = [
    (b"\xd0\xcf\x11\xe0", "an Excel file of before 2007, or one with a password: save it as .xlsx without one, or as CSV"),
    (b"\x1f\x8b", "compressed, with gzip: unpack it first (gunzip)"),
    (b"BZh", "compressed, with bzip2: unpack it first (bunzip2)"),
    (b"\xfd7zXZ\0", "compressed, with xz: unpack it first (unxz)"),
    (b"\x28\xb5\x2f\xfd", "compressed, with zstd: unpack it first (unzstd)"),
    (b"7z\xbc\xaf\x27\x1c", "an archive of 7-Zip: unpack it first"),
    (b"Rar!\x1a\x07", "an archive of RAR: unpack it first"),
    (b"%PDF-", "a PDF: save its tables as CSV or .xlsx"),
    (b"{\\rtf", "a text of a word processor: save its tables as CSV or .xlsx"),
    (b"ARROW1", "an Arrow file (Feather): save it as Parquet"),
    (b"ORC", "an ORC file: save it as Parquet"),
    (b"Obj\x01", "an Avro file: save it as Parquet"),
    (b"\x89HDF", "an HDF5 file: save its tables as Parquet"),
]


def of_no_use(start, path):
    """What a file that starts so is, with what to do; None for what tables may be made of."""
    for mark, kind in KINDS:
        if start.startswith(mark):
            return kind
    if start[257:262] == b"ustar":
        return "an archive of tar: unpack it first"
    if re.match(rb"(\xef\xbb\xbf)?\s*<(!doctype\b|html\b|head\b|body\b|meta\b|table\b|\?xml\b|\?mso|style\b|div\b|workbook\b)", start, re.I):
        return "HTML or XML, whatever its name says: open it in Excel or a browser, and save its table as .xlsx or CSV"
    return None
