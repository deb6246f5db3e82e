"""Records and rules of the catalog: names, locations, pages, the list index and grants, as pure values."""
