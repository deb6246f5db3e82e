"""What the catalog does: one function per operation, each reading top to bottom as its protocol."""
