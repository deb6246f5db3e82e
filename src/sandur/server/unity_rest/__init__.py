"""The Unity Catalog open API: its classic and control routes, and beside them those of Delta."""
