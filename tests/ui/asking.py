"""Pages as their readers see them, and forms as programs with a token send them."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import urlencode

from tests.support.http import Desk, Reply
from tests.support.lab import Lab
from tests.support.pages import Document


async def token(lab: Lab, *scopes: str, **more: Any) -> dict[str, str]:
    made = await lab.engine.create_access_token(name="x", scopes=scopes, **more)
    await lab.engine.authenticate(token=made.token)  # its use is noted now
    return {"Authorization": f"Bearer {made.token.reveal()}"}


async def posted(desk: Desk, path: str, headers: dict[str, str], **fields: str) -> Reply:
    form = {"content-type": "application/x-www-form-urlencoded", **headers}
    return await desk.post(path, urlencode(fields).encode(), headers=form)


def text_of(page: Document) -> str:
    return " ".join(" ".join(page.texts).split())


def flash_in(reply: Reply) -> str:
    cookie = reply.headers["set-cookie"].partition(";")[0].partition("=")[2]
    told: str = json.loads(base64.urlsafe_b64decode(cookie.partition(".")[2]))["text"]
    return told
