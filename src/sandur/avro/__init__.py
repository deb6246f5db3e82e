"""Avro files decoded into columns, or record by record. Pure: bytes in, Arrow arrays out.

`columns.read_columns` is the way in. It decodes all records together where it can, and falls back to one by one.
"""
