"""Operations on Iceberg tables and views: names (rules N, R, D), creation (N, S) and commits (C)."""
