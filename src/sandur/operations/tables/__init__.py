"""Operations on Iceberg tables and views.

`names` resolves and settles names (N4–N7, R6, R7, D4). `creation` creates anything with a name (N1–N10, S2, S3);
`create` and `views` create what has a metadata file. `commit` applies changes, and recognises what earlier attempts did
(C1–C11). `register`, `rename` (R1–R9) and `drop` (D1–D4) are one operation each. `documents` reads,
caches and writes metadata files, and loads a table from them.
"""
