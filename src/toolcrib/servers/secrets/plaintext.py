"""Finds plaintext secrets in definitions, names them, and replaces them by references.

A value counts as a secret if every display masks it. Values that are references, commands or names of variables are
not: the file does not contain the secret itself.

Must never put a value into a shape or a `repr`.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from toolcrib.base.masking.values import is_maskable
from toolcrib.model.json import Json, JsonObject, as_list, as_object
from toolcrib.model.servers import ServerSpec
from toolcrib.model.text import visible
from toolcrib.servers.apps.connectable import cribs_among
from toolcrib.servers.exposure import names_variable
from toolcrib.servers.masking import mask, mask_command, mask_url, secret_values
from toolcrib.servers.readers.read import ReadEntry
from toolcrib.servers.syntax.document import KeyPath
from toolcrib.servers.variables import LOOKED_UP, Field, fill, references, syntax_in, texts

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_]+")
_SHORTEST_PART: Final = 8
"""Parts of arguments and addresses that are shorter than this are not replaced: they may be ordinary words."""


@dataclass(frozen=True, slots=True)
class PlaintextSecret:
    """One secret in one definition. `name` is what it is stored under; equal values have equal names.

    `text` is how the file spells it: the value, or a reference of which it is the default. With `stays`, the reason, it
    is not moved.
    """

    name: str
    key: str
    entry: ReadEntry
    value: str = field(repr=False)
    text: str = field(repr=False)
    stays: str | None = None

    def to_json(self) -> JsonObject:
        """Return the public shape; the value is masked."""
        source = self.entry.source
        return {
            "name": self.name,
            "server": visible(self.entry.name),
            "client": source.client,
            "scope": source.scope,
            "file": source.file,
            "line": source.line,
            "field": visible(self.key),
            "value": mask(self.value),
        }


def plaintext_secrets(
    entries: Iterable[ReadEntry], environment: Mapping[str, str], taken: Collection[str]
) -> tuple[PlaintextSecret, ...]:
    """Return the secrets of these entries. `taken` are names that are stored already.

    Tokens of this crib are left out: it wrote them itself, and each can be revoked.
    """
    listed = [entry for entry in entries if entry.spec is not None]
    own = {id(each.read) for each in cribs_among(listed)}
    names: dict[tuple[str, str | None], str] = {}
    used = set(taken)
    found: list[PlaintextSecret] = []
    for entry in listed:
        assert entry.spec is not None
        if id(entry) in own:
            continue
        for key, wanted, value, text, stays in (
            *((*each, each[2], None) for each in _secrets_of(entry.spec, environment)),
            *_defaults_of(entry.spec, environment),
            *_client_secret_of(entry.spec),
        ):
            owner = value, entry.source.project
            if owner not in names:
                names[owner] = _free(wanted, used)
                used.add(names[owner])
            found.append(PlaintextSecret(names[owner], key, entry, value, text, stays))
    return tuple(found)


def replaced(raw: JsonObject, written: Mapping[str, str]) -> JsonObject:
    """Return a definition with each of these values replaced by its reference."""
    result = as_object(_replace_values(raw, _replacement(written)))
    assert result is not None
    return result


def replacements(raw: JsonObject, written: Mapping[str, str], path: KeyPath = ()) -> Iterator[tuple[KeyPath, Json]]:
    """Yield the path and the new value of every text or list that contains one of these values."""
    yield from _changed_members(raw, _replacement(written), path)


def _secrets_of(spec: ServerSpec, environment: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Yield the key, the preferred name and the value of each secret, once per key and value."""
    server = _UNSAFE.sub("_", spec.name).strip("_").upper() or "SERVER"
    yield from _of_map(spec, "env", spec.env, environment, lambda name: name)
    yield from _of_map(spec, "headers", spec.headers, environment, lambda name: f"{server}_{_header_word(name)}")
    words = (spec.command or "", *spec.args)
    shown = mask_command(words)
    hidden = dict.fromkeys(secret_values({}, {}, words, None))
    for index, argument in enumerate(spec.args):
        if not references(argument, syntax_in("args", spec.variables)):
            for value in _parts(argument, shown[index + 1], hidden):
                yield f"args[{index}]", f"{server}_SECRET", value
    if spec.url is not None and not references(spec.url, syntax_in("url", spec.variables)):
        for value in _parts(spec.url, mask_url(spec.url), secret_values({}, {}, (), spec.url)):
            yield "url", f"{server}_SECRET", value


def _defaults_of(spec: ServerSpec, environment: Mapping[str, str]) -> Iterator[tuple[str, str, str, str, str | None]]:
    """Yield the secrets that are defaults of references, such as `${TOKEN:-…}`.

    The reference becomes one to the keyring. If its variable is set, that would change what the server receives.
    """
    for kind, key, text in texts(spec):
        syntax = syntax_in(kind, spec.variables)
        for reference in references(text, syntax):
            if reference.default and reference.default in _secrets_in(
                spec, kind, key, _without_references(text, syntax)
            ):
                is_set = reference.name in environment
                stays = f"the variable {reference.name} is set, so remove its default from the file" if is_set else None
                yield key, reference.name, reference.default, reference.text, stays


def _secrets_in(spec: ServerSpec, kind: Field, key: str, text: str) -> tuple[str, ...]:
    """Return the secrets of a text of a definition whose references are filled in."""
    if kind in ("env", "headers"):
        return tuple(secret_values({key.partition(".")[2]: text}, {}, (), None))
    if kind == "url":
        return tuple(_parts(text, mask_url(text), secret_values({}, {}, (), text)))
    words = (spec.command or "", *spec.args)
    index = 0 if kind == "command" else int(key[5:-1]) + 1
    words = (*words[:index], text, *words[index + 1 :])
    return tuple(_parts(text, mask_command(words)[index], secret_values({}, {}, words, None)))


def _without_references(text: str, syntax: str) -> str:
    return fill(text, syntax, lambda reference: reference.default)


def _client_secret_of(spec: ServerSpec) -> Iterator[tuple[str, str, str, str, str | None]]:
    """Yield the client secret of an OAuth sign-in."""
    secret = spec.auth.client_secret if spec.auth is not None else None
    if secret and not references(secret, "toolcrib"):
        server = _UNSAFE.sub("_", spec.name).strip("_").upper() or "SERVER"
        yield "auth.clientSecret", f"{server}_CLIENT_SECRET", secret, secret, None


def _of_map(
    spec: ServerSpec,
    kind: Field,
    values: Mapping[str, str],
    environment: Mapping[str, str],
    named: Callable[[str], str],
) -> Iterator[tuple[str, str, str]]:
    for name, value in values.items():
        if references(value, syntax_in(kind, spec.variables)):
            continue
        if spec.variables in LOOKED_UP and (value.startswith("!") or names_variable(value, environment)):
            continue
        # The last one is the credential without its scheme.
        for secret in tuple(secret_values({name: value}, {}, (), None))[-1:]:
            yield f"{kind}.{name}", _UNSAFE.sub("_", named(name)), secret


def _parts(text: str, shown: str, secrets: Iterable[str]) -> Iterator[str]:
    """Yield the secret parts of a text as they are spelled there, without those inside another one."""
    spelled = dict.fromkeys(form for secret in secrets for form in (secret, quote(secret, safe="")) if form in text)
    found = [form for form in spelled if len(form) >= _SHORTEST_PART and is_maskable(form) and form not in shown]
    yield from (form for form in found if not any(form != other and form in other for other in found))


def _header_word(name: str) -> str:
    return "TOKEN" if name.lower() == "authorization" else name.upper()


def _free(wanted: str, used: Collection[str]) -> str:
    base = wanted.strip("_")[:90] or "SECRET"
    numbered = (base if number == 1 else f"{base}_{number}" for number in range(1, len(used) + 2))
    return next(name for name in numbered if name not in used)


def _replacement(written: Mapping[str, str]) -> Callable[[str], str]:
    longest_first = sorted(written, key=len, reverse=True)

    def replace(text: str) -> str:
        if text in written:
            return written[text]
        scheme, space, rest = text.partition(" ")
        if space and rest in written:
            return f"{scheme} {written[rest]}"
        for value in longest_first:
            if value.startswith("${") or (len(value) >= _SHORTEST_PART and is_maskable(value)):
                text = text.replace(value, written[value])
        return text

    return replace


def _replace_values(value: Json, replace: Callable[[str], str]) -> Json:
    mapping, listed = as_object(value), as_list(value)
    if mapping is not None:
        return {key: _replace_values(item, replace) for key, item in mapping.items()}
    if listed is not None:
        return [_replace_values(item, replace) for item in listed]
    return replace(value) if isinstance(value, str) else value


def _changed_members(value: Json, replace: Callable[[str], str], path: KeyPath) -> Iterator[tuple[KeyPath, Json]]:
    mapping = as_object(value)
    if mapping is not None:
        for key, item in mapping.items():
            yield from _changed_members(item, replace, (*path, key))
    elif (new := _replace_values(value, replace)) != value:
        yield path, new
