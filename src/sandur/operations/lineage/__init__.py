"""Lineage: the events that clients send, those of the pipeline's own runs, and the graph that is asked for."""
