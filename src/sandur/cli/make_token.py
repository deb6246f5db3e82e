"""`sandur token`: a token signed with the server's secret, for one person or program, and if wanted for one place."""

import os
from pathlib import Path

from sandur.clock import SystemClock
from sandur.errors import BadRequest
from sandur.server.identity import SECRET_BYTES_MIN, Bearer, signed_token, validate_scope_name
from sandur.settings import load_settings, seconds_of


def make_token(principal: str, *, tenant: str | None, workspace: str | None, lifetime: str, config: Path | None) -> str:
    settings = load_settings(file=config, environment=os.environ)
    if len(settings.token.encode()) < SECRET_BYTES_MIN:
        raise BadRequest(f"setting token: a secret that signs tokens has at least {SECRET_BYTES_MIN} bytes")
    for what, name in (("tenant", tenant), ("workspace", workspace)):
        if name is not None:
            validate_scope_name(what, name)
    expires_at = SystemClock().now_ms() // 1_000 + seconds_of(lifetime)
    return signed_token(Bearer(principal, tenant, workspace), secret=settings.token, expires_at_seconds=expires_at)
