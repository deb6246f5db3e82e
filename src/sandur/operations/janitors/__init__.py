"""Janitors: delete what no request can need any more, and nothing else.

Every janitor marks, looks and acts (G5), and every deletion names the version that was read. They run in the server
(`schedule`), one at a time per lake (`lease`), each over its folder (`sweep`). The pipeline's `collect-garbage` uses
the same rules. Records: N9, GC2, GC3 (`records`). Claims, transactions and other leftovers: GC3, T9 (`leftovers`).
Metadata files: GC1 (`metadata`). Files of dropped tables: `purge`.
"""
