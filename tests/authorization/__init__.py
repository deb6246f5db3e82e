"""Authorization, compared with an evaluator that shares no code with the server."""
