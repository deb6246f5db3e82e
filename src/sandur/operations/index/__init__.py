"""The index that lists are served from (rules I1 to I4)."""
