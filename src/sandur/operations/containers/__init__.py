"""Operations on catalogs and namespaces (rules N3 to N9, G5, G6)."""
