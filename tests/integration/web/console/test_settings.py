"""Settings in the console: values, their origin, and problems of the file."""

from pathlib import Path

import pytest

from integration.web.console.console_client import ConsoleClient, open_console
from toolcrib.model.version import __version__

pytestmark = pytest.mark.anyio


async def test_every_setting_is_listed_with_value_and_origin(console: ConsoleClient) -> None:
    page = await console.page("/settings")
    rows = page.one("tbody").all("tr")
    assert len(rows) == len(console.crib.settings.describe())
    port = next(row for row in rows if row.text.startswith("port"))
    assert port.all("td")[1].text == "default"
    assert __version__ in page.one("dl", class_="facts").text
    assert str(console.crib.home.root) in page.one("dl", class_="facts").text
    assert (await console.json("/settings"))["problems"] == []


async def test_secrets_are_masked_and_file_problems_shown_with_their_line(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "toolcrib.toml").write_text('colour = "<b>red</b>"\n\n[[rules]]\neffect = "odd"\n')
    async with open_console(home, github_token="ghp_secret", github_label="<i>x</i>") as console:
        page = await console.page("/settings")
        assert "ghp_secret" not in page.text
        failures = [failure.text for failure in page.all("div", class_="failure")]
        assert any("colour is not a setting." in text and "toolcrib.toml:1" in text for text in failures)
        assert any("must be allow, ask or deny" in text for text in failures)
        assert not page.all("i")


async def test_page_links_the_web_app_manifest_and_its_icon_is_served(console: ConsoleClient) -> None:
    link = (await console.page("/settings")).one("link", rel="manifest")
    manifest = await console.json(link.attributes["href"])
    assert (manifest["start_url"], manifest["display"]) == ("/waiting", "standalone")
    icon = await console.client.get(manifest["icons"][0]["src"])
    assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")
