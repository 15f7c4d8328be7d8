"""The settings of a server.

Each is declared once: its default, its bounds and its line on the configuration page. The flags of
`ff serve`, the variables FLOWFABRIC_SERVER_… and the keys of `flowfabric.toml` follow from that.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, get_type_hints

from flowfabric.errors import InvalidInput
from flowfabric.model.checks import check_flag, check_integer, check_list, check_text
from flowfabric.model.record import Record, defaults_of
from flowfabric.server.access.grants import grants_of
from flowfabric.server.addresses import is_safe

_TEXT_BYTES: Final = 1_024
_YEAR_MS: Final = 31_536_000_000
LOG_FORMATS: Final = ("auto", "text", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


class Form(StrEnum):
    """How a setting is written."""

    TEXT = "text"
    WORDS = "a list"
    FLAG = "true or false"
    COUNT = "a number"
    DURATION = "a duration"  # kept in the milliseconds or seconds that the field's name ends in


class About(Record, frozen=True):
    """What is known of a setting besides its default."""

    text: str
    form: Form
    least: int = 0
    most: int = 0
    words: tuple[str, ...] = ()  # of a text: the only ones


def _text(text: str, words: tuple[str, ...] = ()) -> About:
    return About(text, Form.TEXT, words=words)


def _words(text: str) -> About:
    return About(text, Form.WORDS)


def _flag(text: str) -> About:
    return About(text, Form.FLAG)


def _count(text: str, least: int, most: int) -> About:
    return About(text, Form.COUNT, least, most)


def _duration(text: str, least: int, most: int) -> About:
    return About(text, Form.DURATION, least, most)


class ServerSettings(Record, frozen=True, kw_only=True):
    """How a server listens and what it allows. Every option is here and in `docs/configuration.md`.

    >>> ServerSettings().bind
    '127.0.0.1:9090'
    """

    bind: Annotated[str, _text("where it listens: `host:port`, `unix:/path` or `fd:3`")] = (
        "127.0.0.1:9090"
    )
    public_url: Annotated[
        str | None, _text("how callers reach it, for links; without one as `bind` says")
    ] = None
    behind_proxy: Annotated[
        bool, _flag("a proxy in front of it speaks TLS: it may listen beyond this machine without")
    ] = False
    tls_cert: Annotated[str | None, _text("a file with the certificate and its chain")] = None
    tls_key: Annotated[str | None, _text("a file with its key")] = None
    allowed_hosts: Annotated[
        tuple[str, ...],
        _words("names it answers to, besides this machine's and that of `public_url`; `*`: any"),
    ] = ()
    trusted_proxies: Annotated[
        tuple[str, ...], _words("addresses whose `X-Forwarded-For` and `-Proto` count")
    ] = ()
    wait_max_ms: Annotated[int, _duration("the longest wait of one request", 0, 3_600_000)] = 25_000
    stream_max_age_ms: Annotated[
        int, _duration("when an event stream is told to reconnect", 1_000, 86_400_000)
    ] = 600_000
    keepalive_s: Annotated[int, _duration("how long an idle connection is kept", 1, 3_600)] = 75
    waits_max: Annotated[int, _count("requests that wait at once", 1, 1_000_000)] = 10_000
    waits_per_token: Annotated[int, _count("of them, those of one token", 1, 1_000_000)] = 10_000
    streams_max: Annotated[int, _count("event streams at once", 1, 1_000_000)] = 2_000
    commands_in_flight: Annotated[int, _count("requests that write at once", 1, 100_000)] = 200
    connections_max: Annotated[int, _count("connections at once", 1, 1_000_000)] = 10_000
    connections_per_address: Annotated[
        int, _count("of them, those of one address that is no trusted proxy's", 1, 1_000_000)
    ] = 5_000
    body_max: Annotated[int, _count("bytes of a body that carries no payload", 1_024, 1 << 30)] = (
        65_536
    )
    payload_body_max: Annotated[
        int, _count("bytes of a body with one payload: 1 MiB of it in Base64", 1_024, 1 << 30)
    ] = 1_638_400
    batch_body_max: Annotated[int, _count("bytes of a body with many items", 1_024, 1 << 30)] = (
        16_777_216
    )
    rate_token: Annotated[
        int, _count("requests a second of one token; twice as many at once", 1, 10_000_000)
    ] = 5_000
    rate_address: Annotated[
        int, _count("requests a second without a token, by address", 1, 10_000_000)
    ] = 20
    rate_expensive: Annotated[
        int,
        _count("searches for text, bulk operations and audits a second, by token", 1, 10_000_000),
    ] = 2
    rate_login: Annotated[
        int, _count("failures a minute of one address to show a valid token", 1, 10_000_000)
    ] = 20
    session_idle_ms: Annotated[
        int, _duration("a session of a browser is over after so long without use", 60_000, _YEAR_MS)
    ] = 43_200_000
    session_max_ms: Annotated[int, _duration("and after so long in any case", 60_000, _YEAR_MS)] = (
        604_800_000
    )
    oidc_issuer: Annotated[
        str | None, _text("the identity provider that people sign in with: `https://…`")
    ] = None
    oidc_client_id: Annotated[str | None, _text("the name of this server there")] = None
    oidc_client_secret_file: Annotated[
        str | None, _text("a file with its secret there; without one it has none")
    ] = None
    oidc_name_claim: Annotated[
        str, _text("the claim by which a person is known; it must be one person's for good")
    ] = "sub"
    oidc_groups_claim: Annotated[str, _text("the claim with the groups of a person")] = "groups"
    oidc_groups: Annotated[
        tuple[str, ...],
        _words("what groups allow: `GROUP=SCOPE+…`, `GROUP=SCOPE@NAMESPACE+…`; the first counts"),
    ] = ()
    trusted_user_header: Annotated[
        str | None, _text("a header with the name of a person whom a trusted proxy has signed in")
    ] = None
    trusted_groups_header: Annotated[
        str | None, _text("the same with their groups, with commas between them")
    ] = None
    audit_retention_ms: Annotated[
        int, _duration("how long entries of the audit trail are kept", 60_000, 100 * _YEAR_MS)
    ] = 31_536_000_000
    drain_delay_ms: Annotated[
        int, _duration("on SIGTERM: between “not ready” and the end of waits", 0, 600_000)
    ] = 2_000
    drain_timeout_ms: Annotated[
        int, _duration("on SIGTERM: for requests in flight", 0, 3_600_000)
    ] = 25_000
    store_wait_ms: Annotated[
        int, _duration("at the start: how long a store that is down is waited for", 0, 3_600_000)
    ] = 60_000
    ui: Annotated[bool, _flag("serve the dashboard under `/ui`")] = True
    metrics: Annotated[bool, _flag("serve `/metrics`")] = True
    metrics_auth: Annotated[bool, _flag("`/metrics` needs a token on loopback, too")] = False
    log_format: Annotated[
        str,
        _text("`text` for people, `json` for machines; `auto`: text on a terminal", LOG_FORMATS),
    ] = "auto"
    log_level: Annotated[str, _text("from which level on it logs", LOG_LEVELS)] = "info"

    def __post_init__(self) -> None:
        for setting in SETTINGS.values():
            setting.check(getattr(self, setting.field))
        if self.public_url is not None and not self.public_url.startswith(("http://", "https://")):
            raise InvalidInput("public_url: expected https://host…", field="public_url")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidInput("tls_key: give tls_cert and tls_key, or none", field="tls_key")
        self._check_people()

    def _check_people(self) -> None:
        """What is needed to know people."""
        grants_of(self.oidc_groups)
        if self.oidc_issuer is not None:
            if not is_safe(self.oidc_issuer) or "?" in self.oidc_issuer:
                raise InvalidInput("oidc_issuer: expected https://…", field="oidc_issuer")
            for field in ("oidc_client_id", "public_url", "oidc_groups"):
                if not getattr(self, field):
                    detail = f"{field}: oidc_issuer needs it"
                    raise InvalidInput(detail, field=field)
        if self.trusted_user_header is not None:
            for field in ("trusted_proxies", "oidc_groups", "trusted_groups_header"):
                if not getattr(self, field):
                    detail = f"{field}: trusted_user_header needs it"
                    raise InvalidInput(detail, field=field)

    @property
    def knows_people(self) -> bool:
        """Whether people sign in without a token: then nothing is open to callers without proof."""
        return self.oidc_issuer is not None or self.trusted_user_header is not None


class Setting(Record, frozen=True):
    """A setting: its word outside, its field here, and what is known of it."""

    key: str
    field: str
    about: About
    default: Any

    def check(self, value: object) -> None:
        """Refuse a value out of bounds; the error names the field."""
        about, field = self.about, self.field
        if value is None and self.default is None:
            return
        match about.form:
            case Form.FLAG:
                check_flag(value, field=field)
            case Form.COUNT | Form.DURATION:
                check_integer(value, field=field, least=about.least, most=about.most)
            case Form.WORDS:
                for each in check_list(value, field=field):
                    check_text(each, field=field, max_bytes=_TEXT_BYTES)
            case Form.TEXT:
                check_text(value, field=field, max_bytes=_TEXT_BYTES)
                if about.words and value not in about.words:
                    raise InvalidInput(f"{field}: one of {', '.join(about.words)}", field=field)


def _settings() -> dict[str, Setting]:
    hints = get_type_hints(ServerSettings, include_extras=True)
    defaults = defaults_of(ServerSettings)
    found = {}
    for field in ServerSettings.__struct_fields__:
        (about,) = hints[field].__metadata__
        key = field.removesuffix("_ms").removesuffix("_s")
        found[key] = Setting(key, field, about, defaults[field])
    return found


SETTINGS: Final = _settings()
