"""Signing in by an identity provider: OpenID Connect's authorization code flow with PKCE."""
