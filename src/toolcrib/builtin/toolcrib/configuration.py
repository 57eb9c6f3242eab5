"""Tools of the server `toolcrib` for settings: show them, and set one for the next start.

Secrets are masked, and settings that hold a secret cannot be set here. A change edits only its own line of the file and
can be undone.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio.to_thread

from toolcrib.base.files.write import WriteContext, change_file
from toolcrib.base.settings import (
    AROUND_HOME,
    AROUND_HOME_HINT,
    SETTINGS,
    Setting,
    Settings,
    contains_home,
)
from toolcrib.model import toml
from toolcrib.model.changes import ChangeRecorder
from toolcrib.model.errors import ConfigError, InvalidRequest, NotFound
from toolcrib.model.json import Json, JsonObject
from toolcrib.servers.edit.toml_text import set_top_level
from toolcrib.tools import Inject, tool

SettingName = Annotated[str, "The name of a setting, as returned by get_config."]


class Configuration:
    """The settings of the running crib, and the file that the next start reads."""

    def __init__(
        self,
        settings: Settings,
        file: Path,
        writing: WriteContext,
        changes: ChangeRecorder,
        on_write: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`changes` records the change; `on_write` receives the text before it is written."""
        self._settings = settings
        self._file = file
        self._writing = writing
        self._changes = changes
        self._on_write = on_write

    def describe(self, name: str | None = None) -> list[JsonObject]:
        """Return all settings or one, secrets masked. Raises `settings.unknown`."""
        rows = self._settings.describe()
        return rows if name is None else [row for row in rows if row["name"] == _find_setting(name).name]

    async def set(self, name: str, value: Json) -> JsonObject:
        """Set one setting in the file. Raises `settings.unknown`, `settings.invalid`, and like `change_file`."""
        setting = _find_setting(name)
        if not setting.in_file or setting.secret or not setting.by_tool:
            raise InvalidRequest("request.invalid", f"`{name}` cannot be set with a tool.", "Ask the owner to set it.")
        try:
            parsed = setting.parse(value)
            shown = setting.show(parsed)
        except (ValueError, RuntimeError):
            raise InvalidRequest("request.invalid", f"`{name}` {setting.wrong(value)}") from None
        if name == "default_cwd" and await anyio.to_thread.run_sync(contains_home, parsed, self._settings.home):
            raise InvalidRequest("settings.invalid", f"`default_cwd` {AROUND_HOME}: {shown}.", AROUND_HOME_HINT)

        def changed(before: bytes | None) -> bytes:
            after = _change_setting(before, name=name, value=shown)
            self._on_write(after.decode("utf-8-sig"))
            return after

        change = partial(change_file, self._file, changed, self._writing)
        record: JsonObject = {"file": str(self._file), "name": name, "before": self._current(name), "after": shown}
        await self._changes.record("settings.change", record, lambda: anyio.to_thread.run_sync(change))
        answer: JsonObject = {"name": name, "value": shown, "file": str(self._file), "counts": "from the next start"}
        origin = self._settings.origin(name)
        stronger = origin not in ("default", "code") and not origin.startswith(str(self._file))
        return {**answer, "overriddenBy": origin} if stronger else answer

    def _current(self, name: str) -> Json:
        """Return the current value, masked if secret."""
        return next((row["value"] for row in self._settings.describe() if row["name"] == name), None)


def _find_setting(name: str) -> Setting:
    for setting in SETTINGS:
        if setting.name == name:
            return setting
    raise NotFound("settings.unknown", f"`{name}` is not a setting.")


def _change_setting(before: bytes | None, *, name: str, value: Json) -> bytes:
    """Return the file with one setting changed; raise if anything else in it would change."""
    try:
        text = (before or b"").decode("utf-8-sig")
        old = toml.loads(text)
        new = set_top_level(text, name, value)
        is_right = toml.loads(new) == {**old, name: value}
    except ValueError as error:
        raise ConfigError("settings.invalid", f"The settings file cannot be edited: {error}.") from error
    if not is_right:
        raise ConfigError("settings.invalid", "The settings file has a layout that cannot be edited here.")
    return new.encode()


@tool(read_only=True, title="Show settings")
async def get_config(
    name: Annotated[str | None, "Only this setting."] = None, *, configuration: Annotated[Configuration, Inject]
) -> dict[str, object]:
    """Show the settings of the running crib. Use it to see how it is configured.

    Returns name, value, origin and help of each; passwords are masked.
    """
    return {"settings": configuration.describe(name)}


# Privileged: it changes how the whole crib runs, so it is never granted by default. Destructive: it replaces what the
# owner wrote. Blocked for schedules: such a change needs a person to see it.
@tool(privileged=True, destructive=True, scheduler_blocked=True, title="Change a setting")
async def set_config(
    name: SettingName,
    value: Annotated[str | int | float | bool, "The new value."],
    *,
    configuration: Annotated[Configuration, Inject],
) -> dict[str, object]:
    """Set one setting in the crib's file. Use it only when the person asks for this change.

    It takes effect at the next start; the rest of the file stays. Returns the value and the file.
    """
    return await configuration.set(name, value)
