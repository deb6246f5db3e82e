"""Plots and graphs as SVG, drawn without a library."""
