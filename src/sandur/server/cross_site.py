"""Refuses requests that a page of another web site makes through the browser of a user.

A browser sends requests of any page to a server on its own machine, and to any other server it can reach. It says where
they come from: in `Origin`, in `Sec-Fetch-Site`, and in `Host`, which has the name of the page if its owner lets that
name resolve to this server (DNS rebinding). Programs send no `Origin` and no `Sec-Fetch-Site`.
"""

from collections.abc import Mapping
from typing import Final

from sandur.server.addresses import is_loopback
from sandur.server.http import Refused
from sandur.settings import Settings

_READS: Final = ("GET", "HEAD", "OPTIONS")
_OWN_SITES: Final = frozenset({b"same-origin", b"none"})
_FORM: Final = b"application/x-www-form-urlencoded"
_PAGE_TYPES: Final = frozenset({b"text/plain", b"multipart/form-data"})
_HOSTS_REMEMBERED_MAX: Final = 64
_QUOTED_BYTES_MAX: Final = 100
_ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - recognised, not bound


class CrossSiteGuard:
    """The rules of one server.

    - `Host` must be a name of this server if it listens on loopback or has the setting `allowed_hosts`.
    - `Origin` must be the server itself or one of `allowed_hosts`, for changes, and on loopback for reads too. Without
      `Origin`, the same holds for `Sec-Fetch-Site`.
    - A change has no content type that a page can send without permission.
    - A link on a page of another site may lead to a page for people, which no frame can show.
    """

    def __init__(self, settings: Settings) -> None:
        self._allowed = frozenset(host_of(name.encode("latin-1", "replace")) for name in settings.allowed_hosts)
        self._is_local = is_loopback(settings.host)
        self._checks_hosts = self._is_local or bool(self._allowed)
        self._own = settings.host.lower() if settings.host not in _ANY_ADDRESS else "localhost"
        self._known: set[bytes] = set()

    def check(
        self, method: str, headers: Mapping[bytes, bytes], *, takes_forms: bool = False, takes_links: bool = False
    ) -> None:
        """Raise Refused if the request comes from another site.

        `takes_forms` allows forms, for the OAuth endpoints and pages; `takes_links` allows links, for pages.
        """
        host = headers.get(b"host", b"")
        if self._checks_hosts and host not in self._known:
            self._check_host(host)
        is_read = method in _READS
        if not is_read or (self._is_local and not (takes_links and _follows_link(headers))):
            self._check_origin(headers, host)
        if not is_read:
            _check_content_type(headers, takes_forms=takes_forms)

    def _check_host(self, host: bytes) -> None:
        """An absent `Host` is no name of another site: every browser sends it."""
        name = host_of(host)
        if name and name != self._own and name not in self._allowed and not is_loopback(name):
            quoted = _quote(host)
            raise Refused(
                403,
                f"The request is for the host {quoted}, which is not a name of this server; to allow it, add it to the "
                "setting allowed_hosts",
            )
        if len(self._known) < _HOSTS_REMEMBERED_MAX:
            self._known.add(host)

    def _check_origin(self, headers: Mapping[bytes, bytes], host: bytes) -> None:
        origin = headers.get(b"origin")
        if origin is None:
            site = headers.get(b"sec-fetch-site")
            if site is not None and site not in _OWN_SITES:
                raise Refused(403, "The request comes from a page of another site (Sec-Fetch-Site)")
            return
        authority = origin.partition(b"://")[2].lower()
        if not authority or (authority != host.lower() and host_of(authority) not in self._allowed):
            quoted = _quote(origin)
            raise Refused(
                403,
                f"The request comes from a page of another site, {quoted}; to allow it, add its host to the setting "
                "allowed_hosts",
            )


def _follows_link(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser shows the answer as a page of its own. No script of another site can read it then."""
    is_page = headers.get(b"sec-fetch-mode") == b"navigate" and headers.get(b"sec-fetch-dest") == b"document"
    return is_page and b"origin" not in headers


def host_of(authority: bytes) -> str:
    """The host of `host`, `host:port` or `[address]:port`, in lower case; empty without a host."""
    text = authority.decode("latin-1").lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0].removesuffix(".") if text.count(":") == 1 else text.removesuffix(".")


def _check_content_type(headers: Mapping[bytes, bytes], *, takes_forms: bool) -> None:
    sent = headers.get(b"content-type")
    if sent is None or sent == b"application/json":
        return
    media_type = sent.partition(b";")[0].strip().lower()
    # A page needs permission to send Authorization, and cannot send the name of curl, which labels JSON as a form.
    is_program = b"authorization" in headers or headers.get(b"user-agent", b"").startswith(b"curl/")
    if media_type in _PAGE_TYPES or (media_type == _FORM and not (takes_forms or is_program)):
        raise Refused(403, f"The body has the type {_quote(media_type)}; send it with Content-Type: application/json")


def _quote(raw: bytes) -> str:
    return repr(raw[:_QUOTED_BYTES_MAX].decode("latin-1"))
