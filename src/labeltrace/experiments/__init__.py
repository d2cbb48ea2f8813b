"""The paper's tables as data, and the runner that fills them with measurements of our own."""

from labeltrace.experiments.tables import TABLES, Cell, Table, load_table, read_table

__all__ = ["TABLES", "Cell", "Table", "load_table", "read_table"]
