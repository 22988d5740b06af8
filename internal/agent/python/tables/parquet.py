"""Parquet."""

import os

from .errors import Unreadable
from .frames import typed
from .header import distinct


def tables(recipe, path):
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            meta, given = file.metadata, file.schema_arrow.names
    except Exception as error:
        raise Unreadable(f"{os.path.basename(path)} is a damaged Parquet file: {str(error)[:200]}") from None
    name, shown = recipe.name(path), recipe.shown(path)
    names, remarks = distinct(given)
    if sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups)) > recipe.limit:
        recipe.needs("sql")
        recipe.space["on_disk"][name] = path
        notes = [f"Parquet, too much for a DataFrame here: sql(\"SELECT … FROM {name}\") gives DataFrames"]
        table = recipe.table(name, f"on_disk[{name!r}] = {shown!r}", notes, on_disk=True)
        if len(set(map(str.casefold, given))) < len(given):
            table["notes"].append(f"some of its columns have one name, but for capital letters; DuckDB calls them {', '.join(c['name'] for c in table['columns'][:20])}")
        return [table]
    recipe.import_("pandas as pd")
    if len(set(given)) == len(given):
        read = f"{name} = pd.read_parquet({shown!r})"
    else:  # which pandas refuses
        recipe.import_("pyarrow.parquet as pq")
        read = f"{name} = pq.ParquetFile({shown!r}).read().rename_columns({names!r}).replace_schema_metadata().to_pandas()"
    recipe.run(read)
    return [typed(recipe, name, read, ["Parquet", *(remarks if len(set(given)) < len(given) else [])])]
