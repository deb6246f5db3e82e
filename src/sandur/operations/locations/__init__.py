"""Places: no two living tables, views, volumes or models overlap, in whatever workspace (rules P1–P13).

A place that the catalog generates needs no claim. For a place that a client names, a creation writes a location claim
first, then looks for the claims of others above and below. Of two creations, at least one finds the other.
"""
