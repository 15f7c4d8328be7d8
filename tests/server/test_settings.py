"""Settings: where they come from, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowfabric.cli.parser import build_parser
from flowfabric.errors import InvalidInput
from flowfabric.server.settings import SETTINGS, ServerSettings
from flowfabric.server.sources import choose, unknown_variables, written


def toml(folder: Path, text: str) -> Path:
    path = folder / "flowfabric.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_flag_comes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = toml(tmp_path, '[server]\nwait_max = "1s"\nkeepalive = "2s"\nwaits_max = 3\n')
    environment = {
        "FLOWFABRIC_SERVER_WAIT_MAX": "10s",
        "FLOWFABRIC_SERVER_KEEPALIVE": "20s",
        "FLOWFABRIC_URL": "sqlite:///x.db",
    }
    chosen = choose({"wait_max": "100s", "app": None}, environment, file)
    assert chosen.settings.wait_max_ms == 100_000
    assert chosen.settings.keepalive_s == 20
    assert chosen.settings.waits_max == 3
    assert chosen.settings.streams_max == ServerSettings().streams_max
    wanted = {
        "wait_max": "flag",
        "keepalive": "FLOWFABRIC_SERVER_KEEPALIVE",
        "waits_max": str(file),
        "streams_max": "default",
    }
    assert {key: chosen.sources[key] for key in wanted} == wanted


def test_every_setting_can_be_written_in_all_three_places(tmp_path: Path) -> None:
    other = ServerSettings(
        bind="127.0.0.1:1",
        public_url="https://a.example",
        behind_proxy=True,
        tls_cert="cert.pem",
        tls_key="key.pem",
        allowed_hosts=("a", "b"),
        trusted_proxies=("10.0.0.1",),
        oidc_issuer="https://idp.example",
        oidc_client_id="ff",
        oidc_client_secret_file="secret",
        oidc_name_claim="email",
        oidc_groups_claim="roles",
        oidc_groups=("ops=operate@shop",),
        trusted_user_header="X-User",
        trusted_groups_header="X-Groups",
        ui=False,
        metrics=False,
        metrics_auth=True,
        log_format="json",
        log_level="error",
        **{
            each.field: each.about.least + 2
            for each in SETTINGS.values()
            if type(each.default) is int
        },
    )
    texts = {key: written(each, getattr(other, each.field)) for key, each in SETTINGS.items()}
    assert [
        key for key, each in SETTINGS.items() if texts[key] == written(each, each.default)
    ] == []
    variables = {f"FLOWFABRIC_SERVER_{key.upper()}": text for key, text in texts.items()}
    assert choose({}, variables, None).settings == other

    flags = [
        f"--{key.replace('_', '-')}={text}"
        for key, text in texts.items()
        if text not in ("true", "false")
    ]
    flags += ["--behind-proxy", "--no-ui", "--no-metrics", "--metrics-auth"]
    arguments = build_parser(["serve"]).parse_args(["serve", *flags])
    assert choose(vars(arguments), {}, None).settings == other

    file = toml(tmp_path, "[server]\n" + "".join(f"{in_toml(key, texts[key])}\n" for key in texts))
    assert choose({}, {}, file).settings == other


def in_toml(key: str, text: str) -> str:
    default = SETTINGS[key].default
    if isinstance(default, tuple):
        return f"{key} = {text.split(',')}"
    is_bare = text in ("true", "false") or text.isdigit()
    return f"{key} = {text}" if is_bare else f'{key} = "{text}"'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[server]\nwait_mux = '1s'\n", r"wait_mux is no setting.*did you mean wait_max\?"),
        ("[sever]\n", "sever is no table"),
        ("server = 5\n", r"\[server\] is a table"),
        ("[server\n", "cannot be read"),
        ("[server]\nwait_max = 5\n", 'wait_max: expected a duration such as "20s"'),
        ("[server]\nwait_max = '5'\n", "wait_max: expected a duration"),
        ("[server]\nwaits_max = '5'\n", "waits_max: expected a number"),
        ("[server]\nwaits_max = true\n", "waits_max: expected a number"),
        ("[server]\nwaits_max = 0\n", "waits_max"),
        ("[server]\nmetrics = 'true'\n", "metrics: expected true or false"),
        ("[server]\nallowed_hosts = 'a'\n", "allowed_hosts: expected a list"),
        ("[server]\nlog_level = 'loud'\n", "log_level: one of debug, info, warning, error"),
        ("[server]\ntls_cert = 'a.pem'\n", "tls_key: give tls_cert and tls_key"),
        ("[server]\npublic_url = 'ff.example'\n", "public_url: expected https"),
    ],
)
def test_a_wrong_file_is_refused_with_the_key(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        choose({}, {}, toml(tmp_path, text))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("wait_max", "26"),
        ("wait_max", "2h"),
        ("wait_max", "-1s"),
        ("keepalive", "0s"),
        ("waits_max", "many"),
        ("waits_max", "9" * 30),
        ("metrics", "perhaps"),
        ("log_format", "xml"),
    ],
)
def test_a_wrong_value_is_refused_with_the_key(key: str, text: str) -> None:
    for given in (
        {"environment": {f"FLOWFABRIC_SERVER_{key.upper()}": text}},
        {"flags": {key: text}},
    ):
        sources: dict[str, Any] = {"flags": {}, "environment": {}, "file": None, **given}
        with pytest.raises(InvalidInput, match=key):
            choose(**sources)


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"there is no file .*none\.toml"):
        choose({}, {}, tmp_path / "none.toml")


def test_an_unknown_variable_is_a_warning_with_the_nearest_name() -> None:
    warned = unknown_variables(
        {
            "FLOWFABRIC_URL": "",
            "FLOWFABRIC_SERVER_RATE_TOKEN": "1",
            "FLOWFABRIC_SERVER_RATE_TOKN": "secret",
            "FF_TEST": "",
        }
    )
    assert warned == [
        "FLOWFABRIC_SERVER_RATE_TOKN is no variable of FlowFabric, "
        "did you mean FLOWFABRIC_SERVER_RATE_TOKEN?"
    ]
