"""Servers that accept the tokens of a provider, and forged tokens."""

import base64
from typing import Any, Final

import httpx
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from sandur.clock import SystemClock
from sandur.settings import OidcSettings, Settings
from tests.server.logins import SECURED
from tests.servers.oidc_provider import AUDIENCE, OidcProvider

ME: Final = "/api/sandur/v1/me"
SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE


class ShiftedClock(SystemClock):
    """The real time, moved by as much as a test wants."""

    shift_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.shift_ms


def accepting(provider: OidcProvider, **options: Any) -> Settings:
    """Settings of a server that accepts the tokens of the provider."""
    oidc = OidcSettings(issuer=provider.issuer, audience=AUDIENCE, **options)
    return msgspec.structs.replace(SECURED, oidc=(oidc,))


def sent_by(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def published_key(provider: OidcProvider, algorithm: str) -> dict[str, str]:
    keys = httpx.get(f"{provider.issuer}/jwks").json()["keys"]
    return next(key for key in keys if key["alg"] == algorithm)


def own_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


def public_pem(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def unsigned(claims: dict[str, object], **header: str) -> str:
    return jwt.encode(claims, "", algorithm="none", headers=header)


def hmac_signed(claims: dict[str, object], secret: bytes, **header: str) -> str:
    """A token signed with a public key as the secret; PyJWT itself refuses to make one."""
    head = base64.urlsafe_b64encode(msgspec.json.encode({"alg": "HS256", "typ": "JWT", **header})).rstrip(b"=")
    body = base64.urlsafe_b64encode(msgspec.json.encode(claims)).rstrip(b"=")
    signed = head + b"." + body
    mark = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(signed, secret)
    return (signed + b"." + base64.urlsafe_b64encode(mark).rstrip(b"=")).decode()
