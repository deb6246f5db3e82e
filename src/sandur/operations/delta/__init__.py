"""Delta tables: stage, create, load, commit, publish, rename and drop, over one record per table (L1–L4)."""
