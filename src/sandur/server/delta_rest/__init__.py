"""The Delta REST API: staging, creation and coordinated commits of managed Delta tables."""
