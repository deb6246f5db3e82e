"""Grants: one manifest per workspace, read in the round that reads what it protects (A1–A15)."""
