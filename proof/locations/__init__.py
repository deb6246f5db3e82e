"""Location claims: which owner may use which place (P1–P13)."""
