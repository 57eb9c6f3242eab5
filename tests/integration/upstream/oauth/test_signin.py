"""Signing in at a real authorization server, and attacks on each step."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import pytest

from integration.upstream.oauth.authority import (
    Authority,
    authority,
    browser,
    complete,
    credentials_in,
    shared_web,
    target,
    visit,
)
from toolcrib.base.network.web import Web
from toolcrib.model.errors import Unavailable
from toolcrib.model.servers import Auth
from toolcrib.upstream.credentials import CredentialStore, OAuthCredential, Registration
from toolcrib.upstream.oauth.demand import Challenge, Demand
from toolcrib.upstream.oauth.sign_in import signing_in

pytestmark = pytest.mark.anyio


@pytest.fixture
async def site() -> AsyncGenerator[Authority]:
    async with authority() as made:
        yield made


@pytest.fixture
def web() -> Web:
    return shared_web()


@pytest.fixture
def tokens(tmp_path: Path) -> CredentialStore:
    return credentials_in(tmp_path)


async def sign_in(
    web: Web, tokens: CredentialStore, site: Authority, auth: Auth | None = None, port: int = 0
) -> OAuthCredential:
    async with signing_in(web, tokens, target(site, auth, port=port)) as attempt:
        return await complete(attempt)


async def sign_in_error(web: Web, tokens: CredentialStore, site: Authority, auth: Auth | None = None) -> str:
    """Return the error of a failed sign-in; nothing of it may be stored."""
    with pytest.raises(Unavailable) as failure:
        await sign_in(web, tokens, site, auth)
    assert failure.value.code == "oauth.failed"
    assert failure.value.message.startswith("OAuth authentication failed: ")
    assert await tokens.credential("lab", site.resource) is None
    return failure.value.message


async def test_sign_in_stores_its_credential(web: Web, tokens: CredentialStore, site: Authority) -> None:
    credential = await sign_in(web, tokens, site)
    assert credential.resource == site.resource
    assert credential.issuer == site.issuer
    assert credential.scopes == ("read",)
    assert credential.lifetime == 3600
    assert credential.local
    assert await tokens.credential("lab", site.resource) == credential
    assert await tokens.credential("lab", "https://other.example/mcp") is None
    assert await tokens.credential("other", site.resource) is None
    client = site.provider.clients[credential.client.client_id]
    assert client.application_type == "native"
    assert [str(uri) for uri in client.redirect_uris or ()] == [credential.client.redirect_uri]


async def test_authorization_names_the_resource_and_uses_s256(
    web: Web, tokens: CredentialStore, site: Authority
) -> None:
    async with signing_in(web, tokens, target(site)) as attempt:
        query = parse_qs(urlsplit(attempt.url).query)
        await complete(attempt)
    assert query["resource"] == [site.resource]
    assert query["code_challenge_method"] == ["S256"]
    assert query["redirect_uri"] == [attempt.redirect_uri]
    assert len(query["state"][0]) >= 43
    assert [form["resource"] for form in site.forms] == [site.resource]


async def test_registration_is_reused_at_its_issuer(web: Web, tokens: CredentialStore, site: Authority) -> None:
    first = await sign_in(web, tokens, site)
    second = await sign_in(web, tokens, site)
    assert first.client == second.client
    assert first.access_token != second.access_token
    assert len(site.provider.clients) == 1


async def test_wider_scopes_need_a_new_registration(web: Web, tokens: CredentialStore, site: Authority) -> None:
    await sign_in(web, tokens, site)
    async with signing_in(web, tokens, target(site), demand=Demand(("write",))) as attempt:
        credential = await complete(attempt)
    assert credential.scopes == ("read", "write")
    assert len(site.provider.clients) == 2


async def test_client_id_and_secret_of_a_definition_are_used(
    web: Web, tokens: CredentialStore, site: Authority
) -> None:
    made = await sign_in(web, tokens, site)
    known = site.provider.clients[made.client.client_id]
    site.provider.clients["given"] = known.model_copy(
        update={"client_id": "given", "client_secret": "s3cret/&=", "token_endpoint_auth_method": "client_secret_basic"}
    )
    port = urlsplit(made.client.redirect_uri or "").port or 0
    auth = Auth(client_id="given", client_secret="s3cret/&=")
    credential = await sign_in(web, tokens, site, auth, port)
    assert credential.client.client_id == "given"
    assert site.provider.access[credential.access_token].client_id == "given"


async def test_client_metadata_document_is_used_if_the_issuer_supports_it(
    web: Web, tokens: CredentialStore, site: Authority
) -> None:
    site.metadata["client_id_metadata_document_supported"] = True
    document = "https://toolcrib.example/client.json"
    async with signing_in(web, tokens, target(site, document=document)) as attempt:
        assert parse_qs(urlsplit(attempt.url).query)["client_id"] == [document]
    assert not site.provider.clients


async def test_final_address_of_another_browser_can_be_pasted(
    web: Web, tokens: CredentialStore, site: Authority
) -> None:
    async with signing_in(web, tokens, target(site)) as attempt:
        async with browser() as client:
            final = (await client.get(attempt.url)).headers["location"]
        attempt.paste(f" {final}\n")
        with anyio.fail_after(10):
            credential = await attempt.finish()
        with pytest.raises(Unavailable, match="does not belong to the sign-in"):
            attempt.paste(final)
    assert credential.access_token in site.provider.access


async def test_pasted_address_with_a_wrong_state_is_refused(web: Web, tokens: CredentialStore, site: Authority) -> None:
    async with signing_in(web, tokens, target(site)) as attempt:
        state = parse_qs(urlsplit(attempt.url).query)["state"][0]
        for final in (
            f"https://evil.example/callback?code=stolen&state={state}",
            f"{attempt.redirect_uri}?code=stolen&state=guess",
            f"{attempt.redirect_uri}?code=stolen",
            "https://evil.example/callback?code=x&state=y",
            "not an address",
        ):
            with pytest.raises(Unavailable, match="does not belong to the sign-in"):
                attempt.paste(final)


async def test_requests_with_a_guessed_state_do_not_end_the_sign_in(
    web: Web, tokens: CredentialStore, site: Authority
) -> None:
    async with signing_in(web, tokens, target(site)) as attempt:
        base = attempt.redirect_uri
        guessed: list[int] = []
        credentials: list[OAuthCredential] = []

        async def guess_then_sign_in() -> None:
            async with browser() as client:
                for url in (f"{base}?code=x&state=y", f"{base}?state=", f"{base}/other", f"{base[:-9]}/?state=x"):
                    answer = await client.get(url)
                    guessed.append(answer.status_code)
                named = await client.get(f"{base}?code=x", headers={"host": "evil.example"})
                posted = await client.post(base, content=b"code=x")
                guessed.extend((named.status_code, posted.status_code))
            await visit(attempt.url)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(guess_then_sign_in)
                credentials.append(await attempt.finish())
    assert guessed == [400, 400, 404, 404, 404, 404]
    assert credentials[0].access_token in site.provider.access


async def test_final_page_does_not_repeat_the_error_of_the_issuer(
    web: Web, tokens: CredentialStore, site: Authority
) -> None:
    site.provider.denies = "<script>alert(1)</script>"
    pages: list[httpx2.Response] = []
    async with signing_in(web, tokens, target(site)) as attempt:

        async def open_page() -> None:
            pages.append(await visit(attempt.url))

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(open_page)
                with pytest.raises(Unavailable, match="access_denied"):
                    await attempt.finish()
    assert "script" not in pages[0].text
    assert "You are not signed in" in pages[0].text
    assert "default-src 'none'" in pages[0].headers["content-security-policy"]


async def test_challenge_of_a_post_leads_to_the_metadata(web: Web, tokens: CredentialStore, site: Authority) -> None:
    site.challenges = ("POST",)
    site.resource_metadata_path = "/elsewhere"
    credential = await sign_in(web, tokens, site)
    assert credential.resource == site.resource


async def test_challenge_of_a_get_leads_to_the_metadata(web: Web, tokens: CredentialStore, site: Authority) -> None:
    site.challenges = ("GET",)
    site.resource_metadata_path = "/elsewhere"
    assert (await sign_in(web, tokens, site)).resource == site.resource


async def test_challenge_of_an_earlier_call_is_used_when_the_probe_gets_none(
    web: Web, tokens: CredentialStore, site: Authority
) -> None:
    site.challenges = ()
    site.resource_metadata_path = "/elsewhere"
    demand = Demand(challenge=Challenge("invalid_token", ("write",), f"{site.url}/elsewhere"))
    async with signing_in(web, tokens, target(site), demand=demand) as attempt:
        credential = await complete(attempt)
    assert credential.scopes == ("write",)


async def test_server_without_metadata_uses_the_default_paths(
    web: Web, tokens: CredentialStore, site: Authority
) -> None:
    site.publishes = False
    site.provider.iss = None
    credential = await sign_in(web, tokens, site)
    assert credential.issuer == site.url
    assert credential.token_endpoint == f"{site.url}/token"
    assert [form["code_verifier"] != "" for form in site.forms] == [True]


async def test_unfinished_sign_in_times_out(web: Web, tokens: CredentialStore, site: Authority) -> None:
    async with signing_in(web, tokens, target(site), seconds=0.05) as attempt:
        with pytest.raises(Unavailable) as failure:
            await attempt.finish()
        assert failure.value.code == "oauth.timeout"
        assert failure.value.message == "OAuth flow timed out. Please try again."
        with pytest.raises(Unavailable, match="does not belong"):
            state = parse_qs(urlsplit(attempt.url).query)["state"][0]
            attempt.paste(f"{attempt.redirect_uri}?code=late&state={state}")
    assert await tokens.registration(site.issuer) is None


async def test_code_from_another_issuer_is_not_redeemed(web: Web, tokens: CredentialStore, site: Authority) -> None:
    site.provider.iss = "https://evil.example"
    assert "another issuer" in await sign_in_error(web, tokens, site)
    assert not site.forms


async def test_issuer_that_announces_the_iss_parameter_must_send_it(
    web: Web, tokens: CredentialStore, site: Authority
) -> None:
    site.metadata["authorization_response_iss_parameter_supported"] = True
    site.provider.iss = None
    assert "another issuer" in await sign_in_error(web, tokens, site)
    assert not site.forms


async def test_error_of_another_issuer_is_not_shown(web: Web, tokens: CredentialStore, site: Authority) -> None:
    async with signing_in(web, tokens, target(site)) as attempt:
        state = parse_qs(urlsplit(attempt.url).query)["state"][0]
        attempt.paste(f"{attempt.redirect_uri}?error=call_us_at_555&state={state}&iss=https%3A%2F%2Fevil.example")
        with pytest.raises(Unavailable) as failure:
            await attempt.finish()
    assert "555" not in failure.value.message


async def test_duplicate_code_parameter_is_refused(web: Web, tokens: CredentialStore, site: Authority) -> None:
    async with signing_in(web, tokens, target(site)) as attempt:
        state = parse_qs(urlsplit(attempt.url).query)["state"][0]
        attempt.paste(f"{attempt.redirect_uri}?code=a&code=b&state={state}")
        with pytest.raises(Unavailable, match="without a code"):
            await attempt.finish()
    assert not site.forms


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
async def test_issuer_without_s256_is_refused(
    web: Web, tokens: CredentialStore, site: Authority, methods: list[str] | None
) -> None:
    site.metadata["code_challenge_methods_supported"] = methods
    assert "PKCE" in await sign_in_error(web, tokens, site)


async def test_metadata_of_another_issuer_is_refused(web: Web, tokens: CredentialStore, site: Authority) -> None:
    site.metadata["issuer"] = "https://evil.example"
    assert "belongs to https://evil.example" in await sign_in_error(web, tokens, site)


async def test_issuer_is_compared_byte_by_byte(web: Web, tokens: CredentialStore, site: Authority) -> None:
    site.resource_changes["authorization_servers"] = [site.url]  # the same origin, without the slash
    assert "belongs to" in await sign_in_error(web, tokens, site)


@pytest.mark.parametrize("endpoint", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
async def test_unsafe_endpoint_is_refused(web: Web, tokens: CredentialStore, site: Authority, endpoint: str) -> None:
    strange = ("javascript:alert(1)", "file:///etc/passwd", "https://a$(id)", "http://example.com/", "https://u@x/")
    for address in strange:
        site.metadata[endpoint] = address
        assert "was refused" in await sign_in_error(web, tokens, site)


async def test_resource_metadata_of_another_server_is_refused(
    web: Web, tokens: CredentialStore, site: Authority
) -> None:
    site.resource_changes["resource"] = "https://bank.example/mcp"
    assert "is not its address" in await sign_in_error(web, tokens, site)


async def test_issuer_without_registration_needs_a_client_id(
    web: Web, tokens: CredentialStore, site: Authority
) -> None:
    site.metadata["registration_endpoint"] = None
    assert "client id" in await sign_in_error(web, tokens, site)


async def test_client_secret_of_a_definition_is_bound_to_one_issuer(
    web: Web, tokens: CredentialStore, site: Authority
) -> None:
    auth = Auth(client_id="given", client_secret="s3cret")
    async with signing_in(web, tokens, target(site, auth=auth)):
        pass
    async with authority() as other:
        site.resource_changes["authorization_servers"] = [other.issuer]
        assert "client secret is for" in await sign_in_error(web, tokens, site, auth=auth)
        assert not other.forms
    await tokens.forget("lab")
    assert await tokens.bound_issuer("lab", "given") is None


async def test_changed_issuer_gets_a_new_registration(web: Web, tokens: CredentialStore, site: Authority) -> None:
    before = await sign_in(web, tokens, site)
    async with authority() as other:
        site.resource_changes["authorization_servers"] = [other.issuer]
        after = await sign_in(web, tokens, site)
        assert after.issuer == other.issuer
        assert after.client.client_id in other.provider.clients
        assert before.client.client_id not in str(other.forms)
        assert str(before.refresh_token) not in str(other.forms)
    assert await tokens.credential("lab", site.resource) == after


async def test_code_is_not_redeemed_at_an_issuer_that_did_not_send_it(
    web: Web, tokens: CredentialStore, site: Authority
) -> None:
    """The mix-up attack: an attacker's issuer redirects the browser to an honest one to receive its code."""
    async with authority() as evil:
        evil.metadata["authorization_endpoint"] = f"{site.url}/authorize"
        site.resource_changes["authorization_servers"] = [evil.issuer]
        async with signing_in(web, tokens, target(site)) as attempt:
            query = parse_qs(urlsplit(attempt.url).query)
            client = evil.provider.clients[query["client_id"][0]]
            site.provider.clients[client.client_id] = client
            with pytest.raises(Unavailable, match="another issuer"):
                await complete(attempt)
        assert not evil.forms
        assert not site.forms


@pytest.mark.parametrize(
    "answer",
    [
        (400, b'{"error": "invalid_grant"}'),
        (500, b"broken"),
        (200, b"<html>"),
        (200, b'{"access_token": "a\\nb", "token_type": "bearer"}'),
        (200, b'{"access_token": "a", "token_type": "mac"}'),
        (302, b""),
    ],
)
async def test_invalid_token_response_is_refused(
    web: Web, tokens: CredentialStore, site: Authority, answer: tuple[int, bytes]
) -> None:
    site.token_answer = answer
    await sign_in_error(web, tokens, site)
    assert len(site.forms) == 1


async def test_unknown_client_is_registered_again(web: Web, tokens: CredentialStore, site: Authority) -> None:
    site.token_answer = (401, b'{"error": "invalid_client"}')
    assert "invalid_client" in await sign_in_error(web, tokens, site)
    assert await tokens.registration(site.issuer) is None


async def test_representation_of_a_credential_hides_its_tokens(
    web: Web, tokens: CredentialStore, site: Authority
) -> None:
    credential = replace(await sign_in(web, tokens, site), client=Registration("i", "c", "client-secret"))
    for secret in (credential.access_token, credential.refresh_token or "", "client-secret"):
        assert secret
        assert secret not in repr(credential)
        assert secret not in str(credential)
