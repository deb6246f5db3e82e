"""Tests of Unity Catalog's API over HTTP."""
