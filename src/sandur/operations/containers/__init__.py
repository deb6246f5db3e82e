"""Containers: the catalogs and namespaces that hold everything else.

A namespace is a child like a table: it is written first and exists if its parent, read afterwards, exists (N3, N4).
A drop marks the container, looks for children and then drops it (G5, N6). Every other change is one swap of one record,
signed by its request, so that a retry learns what became of its first attempt (G6).
"""
