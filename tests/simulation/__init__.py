"""A deterministic simulation of many servers on one store: real operations, virtual time, seeded faults."""
