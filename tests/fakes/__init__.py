"""Stores and a clock that keep the contract and provoke rare behaviour."""
