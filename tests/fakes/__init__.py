"""Stores and a clock that keep the contract and do on purpose what real ones do rarely."""
