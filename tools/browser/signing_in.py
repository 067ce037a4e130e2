"""Where brokers ask who somebody is: logging in by a browser, and a role that only reads, who presses every button."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from playwright.sync_api import Page

from tools.browser import bears, world
from tools.browser.addresses import act_paths, page_of
from tools.browser.chrome import Watch, axe, chromium, tab
from tools.standalone_process import StandaloneProcess

_SECRET: Final = b"a secret of the console's trial, long enough for it"
_PACKAGE: Final = "org.apache.pulsar.broker.authentication."
ADMIN, READER = "admin", "reader"


def token_of(role: str) -> str:
    """A token without an end, RFC 7519 with HS256."""
    parts = [{"alg": "HS256", "typ": "JWT"}, {"sub": role}]
    text = b".".join(_plain(json.dumps(part).encode()) for part in parts)
    return (text + b"." + _plain(hmac.digest(_SECRET, text, hashlib.sha256))).decode()


def _plain(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def told(directory: Path) -> list[str]:
    """What did not hold, a line each."""
    settings = {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{_PACKAGE}AuthenticationProviderToken",
        "tokenSecretKey": "data:;base64," + base64.b64encode(_SECRET).decode(),
        "authorizationEnabled": "true",
        "superUserRoles": ADMIN,
    }
    with StandaloneProcess(directory / "asked", log=directory / "asked.log", settings=settings) as process:
        process.headers["Authorization"] = f"Bearer {token_of(ADMIN)}"
        asyncio.run(world.fill(process.service_url, process.web_url, token_of(ADMIN)))
        permissions = f"/admin/v2/namespaces/shop/orders/permissions/{READER}"
        process.request("POST", permissions, ["consume"])
        # Who may consume may clear and reset, too, as with Pulsar, unless a subscription has roles of its own.
        roles = "/admin/v2/namespaces/shop/orders/permissions/subscription/billing"
        process.request("POST", roles, ["billing-service"])
        watch = Watch(urlsplit(process.web_url).netloc)
        found: list[str] = []
        with chromium() as browser, tab(browser, watch, base_url=process.web_url) as page:
            found += _logs_in(page)
            before = bears.state(process)
            pressed = _presses_everything(page)
            found += bears.same(f"{READER} at {len(pressed)} buttons", before, bears.state(process))
            print(f"a role that may only read: {len(pressed)} buttons pressed, nothing changed: {not found}")
            page.goto("/console/")
            page.get_by_role("button", name="Log out").click()
            page.goto(page_of("/topics", namespace="shop/orders"))
            if "/login" not in page.url:
                found.append(f"logged out, and still at {page.url}")
        return found + watch.found


def _logs_in(page: Page) -> list[str]:
    found = []
    wanted = page_of("/messages", topic=f"persistent://{world.ORDERS}")
    page.goto(wanted)
    if "/console/login" not in page.url:
        found.append(f"nobody asks who it is: {page.url}")
    found += axe(page)
    page.get_by_label("Token").fill("not.a.token")
    page.get_by_role("button", name="Log in").click()
    if page.get_by_role("alert").count() != 1:
        found.append(f"a wrong token is let in, or nothing says why it is not: {page.url}")
    page.goto(wanted)
    page.get_by_label("Token").fill(token_of(READER))
    page.get_by_role("button", name="Log in").click()
    if urlsplit(page.url).path != "/console/messages":
        found.append(f"after the login it does not go on to where one was going: {page.url}")
    for cookie in page.context.cookies():
        kept = (cookie["httpOnly"], cookie["sameSite"], cookie["path"])
        if kept != (True, "Strict", "/console"):
            found.append(f"a cookie is kept as {kept}")
        if token_of(READER) in cookie["value"]:
            found.append("the token is in the browser")
    return found


def _presses_everything(page: Page) -> list[str]:
    """The button of every act's question, where it has one; which they were."""
    pressed = []
    for path in act_paths():
        page.goto(path)
        form = page.locator("main form")
        if form.count() == 0:
            continue
        for field in form.locator("input[required], textarea[required]").all():
            field.fill(_filling(field.get_attribute("type") or ""))
        for box in form.locator("input[type=checkbox]").all():
            box.check()
        form.get_by_role("button").first.click()
        pressed.append(path)
    return pressed


def _filling(kind: str) -> str:
    return {"number": "1", "datetime-local": "2026-01-01T00:00:00"}.get(kind, "entered")
