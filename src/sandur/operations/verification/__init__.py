"""The verification of a store: every invariant of docs/protocol.md, read-only and beside running servers."""
