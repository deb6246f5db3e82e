"""Real servers, and one double, that the storage tests run against."""
