"""Commits to several tables and views at once (rules T1–T9).

`coordinator` runs a transaction from its record to its end, `participants` holds the steps of each table, `completion`
is what remains to be done once it is committed (T9), and `resolution` is what every other operation does when it finds
a pending transaction (T5, T6).
"""
