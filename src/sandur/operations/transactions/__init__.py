"""Commits to several tables and views at once (rules T1 to T9)."""
