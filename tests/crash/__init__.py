"""Tests that kill: what is left must be whole, and usable without repair."""
