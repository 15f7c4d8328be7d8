"""The settings of a server."""

from __future__ import annotations

from flowfabric import limits
from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_flag, check_integer, check_list, check_text
from flowfabric.model.record import Record

_HOST_BYTES = 300


class ServerSettings(Record, frozen=True, kw_only=True):
    """How a server listens and what it allows. Every option is here and in `docs/configuration.md`.

    >>> ServerSettings().bind
    '127.0.0.1:9090'
    """

    bind: str = "127.0.0.1:9090"  # host:port, unix:/path or fd:N
    public_url: str | None = None  # how callers reach it: for links; None: by `bind`
    behind_proxy: bool = False  # a proxy speaks TLS for it
    tls_cert: str | None = None  # a file
    tls_key: str | None = None  # a file
    allowed_hosts: tuple[str, ...] = ()  # besides loopback and that of `public_url`
    trusted_proxies: tuple[str, ...] = ()  # addresses whose X-Forwarded-For counts
    wait_max_ms: int = 25_000  # the longest wait of one request
    stream_max_age_ms: int = 600_000  # when an event stream is told to reconnect
    keepalive_s: int = 75  # how long an idle connection is kept
    waits_max: int = 10_000  # requests that wait at once
    streams_max: int = 2_000  # event streams at once
    commands_in_flight: int = 200  # requests that write at once
    body_max: int = 65_536  # bytes of a body that carries no payload
    payload_body_max: int = 1_638_400  # bytes of a body with one payload: 1 MiB of it in Base64
    batch_body_max: int = 16_777_216  # bytes of a body with many items
    rate_token: int = 5_000  # requests a second of one token; twice as many at once
    rate_address: int = 20  # requests a second without a token, by address
    rate_login: int = 20  # failures a minute of one address to show a valid token
    drain_delay_ms: int = 2_000  # between "not ready" and the end of waits
    drain_timeout_ms: int = 25_000  # for requests in flight
    metrics_auth: bool = False  # /metrics needs a token on loopback, too

    def __post_init__(self) -> None:
        check_text(self.bind, field="bind", max_bytes=_HOST_BYTES)
        if self.public_url is not None:
            check_text(self.public_url, field="public_url", max_bytes=limits.NAME_BYTES)
            if not self.public_url.startswith(("http://", "https://")):
                raise InvalidInput("public_url: expected https://host…", field="public_url")
        for field in ("behind_proxy", "metrics_auth"):
            check_flag(getattr(self, field), field=field)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidInput("tls_key: give tls_cert and tls_key, or none", field="tls_key")
        for field in ("allowed_hosts", "trusted_proxies"):
            for each in check_list(getattr(self, field), field=field):
                check_text(each, field=field, max_bytes=_HOST_BYTES)
        for field, least, most in (
            ("wait_max_ms", 0, 3_600_000),
            ("stream_max_age_ms", 1_000, 86_400_000),
            ("keepalive_s", 1, 3_600),
            ("waits_max", 1, 1_000_000),
            ("streams_max", 1, 1_000_000),
            ("commands_in_flight", 1, 100_000),
            ("body_max", 1_024, 1 << 30),
            ("payload_body_max", 1_024, 1 << 30),
            ("batch_body_max", 1_024, 1 << 30),
            ("rate_token", 1, 10_000_000),
            ("rate_address", 1, 10_000_000),
            ("rate_login", 1, 10_000_000),
            ("drain_delay_ms", 0, 600_000),
            ("drain_timeout_ms", 0, 3_600_000),
        ):
            check_integer(getattr(self, field), field=field, least=least, most=most)
