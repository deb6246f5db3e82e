"""The data pipeline: what happened, what exists and what can go, computed with Spark beside the server."""
