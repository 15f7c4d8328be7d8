"""This server as a client of the identity provider that its settings name."""

from __future__ import annotations

from typing import Final

from flowfabric.server.oidc.provider import Client, Provider, fetch
from flowfabric.server.settings import ServerSettings

CALLBACK: Final = "/ui/login/oidc/callback"


def provider_of(settings: ServerSettings) -> Provider | None:
    """The provider; None where people sign in otherwise."""
    if settings.oidc_issuer is None:
        return None
    client = Client(
        issuer=settings.oidc_issuer,
        client_id=settings.oidc_client_id or "",
        secret_file=settings.oidc_client_secret_file,
        redirect=f"{(settings.public_url or '').rstrip('/')}{CALLBACK}",
        name_claim=settings.oidc_name_claim,
        groups_claim=settings.oidc_groups_claim,
    )
    return Provider(client, fetch)
