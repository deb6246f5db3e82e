"""Commits to several tables and views at once (rules T1–T9).

`coordinator` runs a transaction from its record to its end, `participants` holds the steps of each table, and
`resolution` is what every other operation does when it finds a pending transaction (T5, T6).
"""
