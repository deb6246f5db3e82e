"""Scan planning as pure functions: manifests decoded and filtered, delete files matched, tasks written as JSON."""
