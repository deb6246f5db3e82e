"""Decisions about the maintenance of tables: policies, the health of a table, and the plan of a run."""
