"""Lineage: the events that engines send, and the runs that they describe, as pure values."""
