"""What runs inside the environments of the engines: each module answers statements for a test."""
