"""Search by meaning: a local model finds tools without common words, and nothing is downloaded."""

import importlib
import json
import logging
import socket
from pathlib import Path
from typing import Any

import pytest

from toolcrib.gate.search.embeddings import StaticEmbeddings, unusable
from toolcrib.gate.search.search import ToolSearch
from toolcrib.gate.view import Listing
from toolcrib.model.tools import Tool, ToolRef

pytestmark = pytest.mark.anyio

WORDS = {
    "[UNK]": (0.0, 0.0, 0.0),
    "canine": (1.0, 0.1, 0.0),
    "walkies": (0.9, 0.2, 0.0),
    "dog": (1.0, 0.0, 0.0),
    "leash": (0.8, 0.2, 0.0),
    "invoice": (0.0, 1.0, 0.0),
    "ledger": (0.0, 0.9, 0.1),
    "rocket": (0.0, 0.0, 1.0),
}
"""A vocabulary with its vectors: words of one topic point the same way."""

TOOLS = (
    Tool(ToolRef("books", "post_invoice"), "Post an invoice to the ledger.", {}),
    Tool(ToolRef("pets", "dog_leash"), "Put the dog on a leash.", {}),
    Tool(ToolRef("space", "rocket"), "Launch a rocket.", {}),
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Create a model with eight words, as model2vec stores one."""
    numpy: Any = importlib.import_module("numpy")
    tokenizers: Any = importlib.import_module("tokenizers")
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    vectors = numpy.array(list(WORDS.values()), dtype="float32")
    static: Any = importlib.import_module("model2vec").StaticModel
    static(vectors, tokenizer).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


async def find_tools(search: ToolSearch, query: str, tools: tuple[Tool, ...] = TOOLS) -> list[tuple[str, float]]:
    return [(str(each.tool.ref), each.score) for each in await search.find(Listing((1, 1), tools), query, 5)]


async def test_words_of_similar_meaning_find_a_tool(model: Path) -> None:
    assert await find_tools(ToolSearch(), "canine walkies") == []
    assert [ref for ref, _ in await find_tools(ToolSearch(StaticEmbeddings(model)), "canine walkies")] == [
        "pets/dog_leash"
    ]


async def test_exact_name_ranks_first_and_scores_decrease(model: Path) -> None:
    matches = await find_tools(ToolSearch(StaticEmbeddings(model)), "rocket")
    assert matches[0] == ("space/rocket", 1.0)
    matches = await find_tools(ToolSearch(StaticEmbeddings(model)), "post the canine an invoice")
    assert {ref for ref, _ in matches} == {"books/post_invoice", "pets/dog_leash"}
    assert matches[0][0] == "books/post_invoice"
    assert [score for _, score in matches] == sorted((score for _, score in matches), reverse=True)
    assert all(0 < score < 1 for _, score in matches)


async def test_tools_that_the_caller_does_not_see_are_not_found(model: Path) -> None:
    search = ToolSearch(StaticEmbeddings(model))
    assert await find_tools(search, "canine") == [("pets/dog_leash", pytest.approx(0.33, abs=0.01))]
    assert await find_tools(search, "canine", TOOLS[:1]) == []


@pytest.mark.parametrize("damage", ["no directory", "no tokenizer", "no weights"])
async def test_unusable_model_falls_back_to_words_and_downloads_nothing(
    model: Path, damage: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("A connection was opened.")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    if damage == "no directory":
        model = model / "minishlab"
    elif damage == "no tokenizer":
        (model / "tokenizer.json").unlink()
    else:
        (model / "model.safetensors").write_bytes(b"\x08" + b"\0" * 20)
    search = ToolSearch(StaticEmbeddings(model))
    with caplog.at_level(logging.WARNING):
        assert [ref for ref, _ in await find_tools(search, "dog")] == ["pets/dog_leash"]
        assert [ref for ref, _ in await find_tools(search, "invoice", TOOLS[:2])] == ["books/post_invoice"]
    assert len([record for record in caplog.records if "words only" in record.message]) == 1
    assert (unusable(model) is None) == (damage == "no weights")


async def test_model_is_usable_only_with_all_its_files(model: Path) -> None:
    assert unusable(model) is None
    assert json.loads((model / "config.json").read_text())
    (model / "config.json").unlink()
    assert "config.json is missing" in str(unusable(model))
