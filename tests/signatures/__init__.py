"""Remote signing: the judge, the signatures, the routes, and real clients without keys."""
