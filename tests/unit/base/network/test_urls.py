"""Which URLs may be requested, and which addresses may be dialled."""

import json
import os
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.base.network.urls import check_url, covers, is_loopback, is_public, may_dial
from toolcrib.model.errors import InvalidRequest

CORPUS = os.environ.get("TOOLCRIB_CORPUS")

PUBLIC = ("93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "2a00:1450:4001::1")
NEVER = (
    *("0.0.0.0", "169.254.169.254", "169.254.0.1", "100.100.100.200", "fd00:ec2::254", "fd20:ce::254", "::", "fe80::1"),
    *("224.0.0.1", "ff02::1", "255.255.255.255", "240.0.0.1", "192.0.0.192", "198.18.0.1", "203.0.113.7", "fec0::1"),
    *("2002:7f00:1::", "2002:808:808::1", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::a9fe:a9fe"),
    *("::ffff:127.0.0.1", "::ffff:8.8.8.8", "::7f00:1", "2001::1", "2001:db8::1", "not an address", ""),
)
LOCAL = ("127.0.0.1", "127.8.9.10", "::1", "10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "fc00::1", "fd12::1")


@pytest.mark.parametrize("address", PUBLIC)
def test_public_address_may_always_be_dialled(address: str) -> None:
    assert is_public(address)
    assert may_dial(address, local_allowed=False)
    assert may_dial(address, local_allowed=True)


@pytest.mark.parametrize("address", NEVER)
def test_reserved_address_may_never_be_dialled(address: str) -> None:
    assert not is_public(address)
    assert not may_dial(address, local_allowed=False)
    assert not may_dial(address, local_allowed=True)


@pytest.mark.parametrize("address", LOCAL)
def test_local_address_may_be_dialled_only_where_allowed(address: str) -> None:
    assert not may_dial(address, local_allowed=False)
    assert may_dial(address, local_allowed=True)


@given(st.ip_addresses())
def test_no_address_is_both_public_and_special(address: IPv4Address | IPv6Address) -> None:
    if is_public(address):
        assert not (address.is_private or address.is_loopback or address.is_link_local or address.is_multicast)
    if is_loopback(address):
        assert not is_public(address)


@given(st.ip_addresses(v=4))
def test_embedded_ipv4_address_is_not_public(address: IPv4Address) -> None:
    inside = int(address)
    for carrier in (0xFFFF << 32, 0x64FF9B << 96, 0x2002 << 112 | inside << 80, 0):
        assert not is_public(IPv6Address(carrier | inside))


def test_url_is_normalised() -> None:
    checked = check_url("HTTPS://EXAMPLE.com.:443/a%20b?q=1#part", local_allowed=False)
    assert checked.text == "https://example.com/a%20b?q=1"
    assert (checked.host, checked.port, checked.origin, checked.local) == (
        "example.com",
        443,
        "https://example.com",
        False,
    )


def test_international_name_is_shown_in_punycode() -> None:
    assert check_url("https://bücher.example/", local_allowed=False).text == "https://xn--bcher-kva.example/"


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000/mcp", "http://localhost/", "http://[::1]:1/", "http://crib.localhost/"]
)
def test_plain_http_to_this_machine_needs_permission(url: str) -> None:
    assert check_url(url, local_allowed=True).local
    with pytest.raises(InvalidRequest) as refusal:
        check_url(url, local_allowed=False)
    assert refusal.value.code == "url.refused"


@pytest.mark.parametrize("url", ["http://192.168.1.2/", "http://example.com/", "http://printer.local/"])
def test_plain_http_to_another_machine_is_always_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        check_url(url, local_allowed=True)


@pytest.mark.parametrize("url", ["https://10.0.0.1/", "https://localhost/", "https://[fd12::1]/"])
def test_host_of_the_local_network_needs_permission(url: str) -> None:
    assert check_url(url, local_allowed=True).local
    with pytest.raises(InvalidRequest):
        check_url(url, local_allowed=False)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://",
        "https:///x",
        "https://@example.com/",
        "https://user:secret@example.com/",
        "https://example.com\\@evil.com/",
        "https://example.com:0/",
        "https://example.com:99999/",
        "https://exa mple.com/",
        "https://example.com/\u202ex",
        "https://exam\u200bple.com/",
        "https://example.com\x00/",
        "https://-a.example/",
        "https://a..b/",
        "https://[fe80::1%25eth0]/",
        "https://127.1/",
        "https://0x7f.1/",
        "https://127。0。0。1/",
        f"https://example.com/{'a' * 9000}",
        f"https://{'a' * 64}.example/",
    ],
)
def test_ambiguous_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequest):
        check_url(url, local_allowed=True)


def test_refusal_shows_no_password() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        check_url("https://user:hunter2@example.com/?token=hunter2", local_allowed=False)
    assert "hunter2" not in refusal.value.message


@given(st.text(max_size=60), st.booleans())
def test_any_text_is_refused_or_has_a_stable_form(text: str, local_allowed: bool) -> None:
    try:
        checked = check_url(f"https://{text}", local_allowed=local_allowed)
    except InvalidRequest:
        return
    assert checked.text.isascii()
    assert check_url(checked.text, local_allowed=local_allowed) == checked


@pytest.mark.parametrize(
    ("resource", "url", "within"),
    [
        ("https://a.example", "https://a.example/mcp", True),
        ("https://a.example/mcp", "https://a.example/mcp/", True),
        ("https://a.example/mcp", "https://a.example/mcp2", False),
        ("https://a.example/mcp/x", "https://a.example/mcp", False),
        ("https://b.example/", "https://a.example/", False),
        ("http://a.example/", "https://a.example/", False),
        ("https://a.example:8443/", "https://a.example/", False),
        ("", "https://a.example/", False),
    ],
)
def test_resource_covers_paths_below_it(resource: str, url: str, within: bool) -> None:
    assert covers(resource, url) is within


@pytest.mark.skipif(not CORPUS, reason="TOOLCRIB_CORPUS is not set")
def test_no_url_of_the_corpus_bypasses_the_guard() -> None:
    lines = Path(CORPUS or "", "own-vectors", "url-guard.jsonl").read_text(encoding="utf-8").splitlines()
    passed: dict[bool, list[str]] = {False: [], True: []}
    for line in lines:
        url = json.loads(line)["url"]
        for local_allowed, urls in passed.items():
            try:
                check_url(url, local_allowed=local_allowed)
            except InvalidRequest:
                continue
            urls.append(url)
    assert len(lines) == 57
    assert passed[False] == ["https://example.com."]
    assert passed[True] == [
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://foo.localhost/",
        "https://example.com.",
    ]
