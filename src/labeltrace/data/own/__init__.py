"""People's own data with no code written: one reader per kind of file, chosen by `own.load`."""
