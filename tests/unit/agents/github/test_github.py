"""Repository and account names are validated before they become part of a URL."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.agents.github.github import GitHubRepository, account
from toolcrib.model.errors import InvalidRequest


@pytest.mark.parametrize("text", ["acme/app", " acme/app\n", "a/b.c_d-e", "Acme-1/.github"])
def test_parse_accepts_owner_and_name(text: str) -> None:
    assert str(GitHubRepository.parse(text)) == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        *("", "app", "acme/", "/app", "acme/app/x", "acme/..", "acme/.", "../app", "acme/a b", "acme/a?b", "acme/a#b"),
        *("https://github.com/acme/app", "acme/a%2fb", "-acme/app", "acme/äpp", "a\0/b", f"acme/{'x' * 101}"),
    ],
)
def test_parse_rejects_other_text_and_hints_at_the_form(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        GitHubRepository.parse(text)
    assert caught.value.code == "github.invalid"
    assert "owner/name" in str(caught.value.hint)


@given(st.text(max_size=60))
def test_accepted_repository_stays_two_path_segments(text: str) -> None:
    try:
        path = f"repos/{GitHubRepository.parse(text)}"
    except InvalidRequest:
        return
    assert path.count("/") == 2
    assert not set(path) & set("?#%\\ \n\r\t@:")
    assert path.split("/")[2] not in (".", "..")


def test_account_accepts_a_leading_at_sign() -> None:
    assert account("@ada") == "ada"
    with pytest.raises(InvalidRequest):
        account("a/b")
