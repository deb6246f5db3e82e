"""What the catalog decides: names, pointers, claims, transactions and the index, as pure values."""
