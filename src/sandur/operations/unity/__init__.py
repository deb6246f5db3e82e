"""The operations of Unity Catalog's API over the tree that all protocols share."""
