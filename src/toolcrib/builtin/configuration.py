"""Tools of the server `toolcrib` about the crib's settings: look at them, and set one for the next start.

No secret is shown, and none can be set here: what holds one is a person's to write. Above: `toolcrib` offers them.
Below: `settings`, and `config.edit`, which changes the file and nothing else in it, with a way back.
"""

import tomllib
from functools import partial
from pathlib import Path
from typing import Annotated

import anyio.to_thread

from toolcrib.config.edit.toml_text import set_top_level
from toolcrib.config.edit.write import Writing, change_file
from toolcrib.errors import ConfigError, InvalidRequest, NotFound
from toolcrib.model.json import Json, JsonObject
from toolcrib.settings import SETTINGS, Setting, Settings
from toolcrib.tools import Inject, tool

SettingName = Annotated[str, "A setting, as get_config names it."]


class Configuration:
    """The settings a crib runs with, and the file that the next start reads."""

    def __init__(self, settings: Settings, file: Path, writing: Writing) -> None:
        self._settings = settings
        self._file = file
        self._writing = writing

    def describe(self, name: str | None = None) -> list[JsonObject]:
        """All settings or one of them, secrets masked. Raises `settings.unknown`."""
        rows = self._settings.describe()
        return rows if name is None else [row for row in rows if row["name"] == _known(name).name]

    async def set(self, name: str, value: Json) -> JsonObject:
        """Set one in the file. Raises `settings.unknown`, `settings.invalid`, and as `change_file` does."""
        setting = _known(name)
        if not setting.in_file or setting.secret or not setting.by_tool:
            raise InvalidRequest("request.invalid", f"`{name}` cannot be set with a tool.", "Ask the owner to set it.")
        try:
            shown = setting.show(setting.parse(value))
        except (ValueError, RuntimeError):
            raise InvalidRequest("request.invalid", f"`{name}` {setting.wrong(value)}") from None
        change = partial(_changed, name=name, value=shown)
        await anyio.to_thread.run_sync(change_file, self._file, change, self._writing)
        answer: JsonObject = {"name": name, "value": shown, "file": str(self._file), "counts": "from the next start on"}
        origin = self._settings.origin(name)
        stronger = origin not in ("default", "code") and not origin.startswith(str(self._file))
        return {**answer, "overriddenBy": origin} if stronger else answer


def _known(name: str) -> Setting:
    for setting in SETTINGS:
        if setting.name == name:
            return setting
    raise NotFound("settings.unknown", f"`{name}` is not a setting.")


def _changed(before: bytes | None, *, name: str, value: Json) -> bytes:
    """The file with this one setting changed; refused where anything else in it would be another."""
    try:
        text = (before or b"").decode("utf-8-sig")
        old = tomllib.loads(text)
        new = set_top_level(text, name, value)
        is_right = tomllib.loads(new) == {**old, name: value}
    except ValueError as error:
        raise ConfigError("settings.invalid", f"The settings file cannot be edited: {error}.") from error
    if not is_right:
        raise ConfigError("settings.invalid", "The settings file is written in a way that cannot be edited here.")
    return new.encode()


@tool(read_only=True, title="Show settings")
async def get_config(
    name: Annotated[str | None, "Only this setting."] = None, *, configuration: Annotated[Configuration, Inject]
) -> dict[str, object]:
    """Show the settings the crib runs with. Use it to find out how it is configured.

    Returns name, value, origin and help of each; passwords are masked.
    """
    return {"settings": configuration.describe(name)}


# Privileged: it changes how the whole crib runs, so nobody has it by default. Destructive: it replaces what the owner
# wrote. Not for schedules: a change of this kind is made while somebody is there to see it.
@tool(privileged=True, destructive=True, scheduler_blocked=True, title="Change a setting")
async def set_config(
    name: SettingName,
    value: Annotated[str | int | float | bool, "What it is to be."],
    *,
    configuration: Annotated[Configuration, Inject],
) -> dict[str, object]:
    """Set one setting in the crib's file. Use it only when the person asks for this change.

    It counts from the next start on; everything else in the file stays. Returns the value and the file.
    """
    return await configuration.set(name, value)
