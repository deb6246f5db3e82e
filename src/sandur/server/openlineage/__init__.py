"""The OpenLineage API: events of jobs that read and write tables, and the two graphs that Marquez serves."""
