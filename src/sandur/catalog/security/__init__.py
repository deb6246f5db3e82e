"""Who may do what: principals, groups, privileges, grants, tokens and restrictions, as pure values."""
