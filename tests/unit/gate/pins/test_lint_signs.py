"""The linear-time search for signs finds every sign that `re` finds in an ASCII text."""

import re
from functools import cache
from random import Random

import pytest

from toolcrib.gate.pins.lint_judge import PHRASES, SIGNS
from toolcrib.gate.pins.lint_signs import Sign, for_ascii, linear, run_on, sign

_SEPARATORS = (" ", " ", " ", " ", ", ", ". ", "\n", "/", ".", ":", "-", "_", "'", " to ", " the ", "\x1c", "\t")


def samples(each: Sign, random: Random) -> list[str]:
    """Return texts with words of a pattern in its order, some left out; many of them match."""
    source = re.sub(r"\\[bwWsd]|\\n|\[[^]]*\]|\{[\d,]*\}", " ", each.source.replace(r"\ ", " "))
    words = re.findall(r"[a-z0-9]+", source)
    texts: list[str] = []
    for _ in range(60):
        start = random.randrange(len(words)) if words else 0
        chosen = [word for word in words[start : start + 30] if random.random() < 0.4]
        texts.append("".join(word + random.choice(_SEPARATORS) for word in chosen))
    return texts


@cache
def texts_of_all_signs() -> list[str]:
    return [text for each in (*SIGNS, *PHRASES) for text in samples(each, Random(0))[:3]]


@pytest.mark.parametrize("number", range(len((*SIGNS, *PHRASES))))
def test_linear_search_finds_each_sign_that_a_search_with_re_finds(number: int) -> None:
    each = (*SIGNS, *PHRASES)[number]
    source = for_ascii(each.source)
    assert source is not None
    search = linear(source)
    for text in texts_of_all_signs():
        assert search(text) or each.folded.search(text) is None, text
    for text in samples(each, Random(number)):
        assert each.occurs_in(text) == (each.folded.search(text) is not None), text


def test_samples_contain_a_fair_share_of_all_signs() -> None:
    found = [each for each in SIGNS if any(each.folded.search(text) for text in samples(each, Random(1)))]
    assert len(found) > len(SIGNS) / 4


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (r"\bread [ ] this\b", "please read this"),
        (r"a\s{1,3}b", "a\x1c\x1fb"),
        (r"[^.\n]{3}x", "...abcx"),
        (r"(?<!not\ )send (?!ing) \ \w+", "do send it"),
        (r"(a|b)c$", "zbc"),
        (r"[-+&~[]{2}x", "-[x"),
        (r"\#1\b", "is #1 ever"),
    ],
)
def test_syntax_of_re_keeps_its_meaning_for_ascii(source: str, text: str) -> None:
    each = sign("is odd", "tool.instructs", source, "x")
    assert each.folded.search(text) is not None
    assert each.occurs_in(text)


def test_assertion_that_the_linear_engine_lacks_is_still_checked() -> None:
    each = sign("is odd", "tool.instructs", r"\bsend\b(?!\ mail)", "send")
    assert each.occurs_in("send money")
    assert not each.occurs_in("send mail")


@pytest.mark.parametrize("source", [r"[^\W\d_]x", r"a.b", r"(?i)a", r"(?P<n>a)", "a # comment"])
def test_pattern_that_cannot_be_translated_is_left_to_re(source: str) -> None:
    assert for_ascii(source) is None


def test_spaced_out_words_are_joined_in_ascii_and_other_texts() -> None:
    assert run_on("please i g n o r e this") == "please ignore this"
    assert run_on("é: i g n o r e this") == "é ignore this"
