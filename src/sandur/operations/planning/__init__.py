"""Scan planning as operations: manifests read and kept, plans that outlive a server, tasks fetched from any of them."""
