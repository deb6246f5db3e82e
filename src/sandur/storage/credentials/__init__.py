"""Issuers of storage credentials: one module per cloud."""

import logging

# At its level `debug`, botocore logs the requests that it signs, with the server's session token.
logging.getLogger("botocore").setLevel(logging.WARNING)
