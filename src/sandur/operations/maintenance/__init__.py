"""Maintenance of tables, as far as it needs no engine: the records of runs, and the deletion of files."""
