"""Table of secrets that are recognised by their form.

Each row is a documented kind: prefix, character class and minimum length of the rest. `FORMS` contains kinds that need
more than a prefix. Patterns match more than an issuer would accept, so that longer or newer forms are masked too. Kinds
without a distinctive form (32 letters and digits, or a common prefix) are found by name (`names`) or randomness
(`randomness`).

Invariant: every repetition is bounded or unambiguous, because the input is untrusted.
"""

import re
from functools import cache
from typing import Final

from toolcrib.base.masking.literals import any_of

_CLASSES: Final = {
    "alnum": "[A-Za-z0-9]",
    "hex": "[0-9A-Fa-f]",
    "word": r"[\w-]",
    "base64": r"[\w+/=-]",
    "dotted": r"[\w.+/=-]",
}
"""The characters after a prefix. `dotted` also matches the separators of composed secrets."""

PREFIXES: Final = """
    1password-service-account   ops_eyJ                 base64  40
    adobe-client-secret         p8e-                    alnum   20
    age-secret-key              AGE-SECRET-KEY-1        alnum   20
    alibaba-access-key          LTAI                    alnum   12
    anthropic                   sk-ant-                 word    16
    artifactory-api-key         AKCp                    alnum   20
    artifactory-reference       cmVmd                   alnum   40
    atlassian                   ATATT3                  base64  20
    atlassian                   ATCTT3                  base64  20
    atlassian                   ATBB                    alnum   20
    aws-access-key              AKIA                    alnum   12
    aws-access-key              ASIA                    alnum   12
    aws-access-key              ABIA                    alnum   12
    aws-access-key              ACCA                    alnum   12
    aws-access-key              A3T                     alnum   14
    aws-bedrock                 ABSK                    base64  40
    aws-bedrock                 bedrock-api-key-        base64  16
    brevo                       xkeysib-                word    20
    brevo                       xsmtpsib-               word    20
    buildkite                   bkua_                   hex     20
    buildkite                   bkaj_                   alnum   20
    cerebras                    csk-                    alnum   20
    circleci                    CCIPAT_                 word    20
    circleci                    CCIPRJ_                 word    20
    clickhouse-cloud            4b1d                    alnum   38
    clojars                     CLOJARS_                alnum   20
    cloudflare-origin           v1.0-                   word    40
    cloudflare-token            cfat_                   word    20
    cloudflare-token            cfut_                   word    20
    contentful-management       CFPAT-                  word    20
    context7                    ctx7sk                  word    16
    databricks                  dapi                    hex     32
    datadog-application         ddapp_                  alnum   20
    defined-networking          dnkey-                  word    20
    digitalocean                dop_v1_                 hex     20
    digitalocean                doo_v1_                 hex     20
    digitalocean                dor_v1_                 hex     20
    docker-hub                  dckr_pat_               word    16
    docker-hub                  dckr_oat_               word    16
    doppler                     dp.pt.                  alnum   20
    doppler                     dp.ct.                  alnum   20
    doppler                     dp.st.                  dotted  20
    doppler                     dp.sa.                  alnum   20
    doppler                     dp.scim.                alnum   20
    doppler                     dp.audit.               alnum   20
    duffel                      duffel_test_            base64  20
    duffel                      duffel_live_            base64  20
    dynatrace                   dt0                     dotted  40
    easypost                    EZAK                    alnum   40
    easypost                    EZTK                    alnum   40
    elevenlabs                  sk_                     hex     40
    figma                       figd_                   word    16
    figma                       figdr_                  word    16
    firecrawl                   fc-                     hex     24
    flutterwave                 FLWSECK                 word    10
    flutterwave                 FLWPUBK                 word    10
    flyio                       fo1_                    word    20
    flyio                       fm1a_                   base64  20
    flyio                       fm1r_                   base64  20
    flyio                       fm2_                    base64  20
    frameio                     fio-u-                  base64  20
    gcp-api-key                 AIza                    word    30
    gcp-oauth                   ya29.                   dotted  20
    gcp-oauth-client            GOCSPX-                 word    16
    gcp-storage-hmac            GOOG1                   alnum   20
    github                      ghp_                    alnum   16
    github                      gho_                    alnum   16
    github                      ghu_                    alnum   16
    github                      ghs_                    dotted  16
    github                      ghr_                    alnum   16
    github                      github_pat_             word    16
    gitlab                      glpat-                  dotted  16
    gitlab                      gldt-                   word    16
    gitlab                      glffct-                 word    16
    gitlab                      glft-                   word    16
    gitlab                      glimt-                  word    16
    gitlab                      glagent-                word    16
    gitlab                      gloas-                  word    16
    gitlab                      glptt-                  word    16
    gitlab                      glrt-                   dotted  16
    gitlab                      glrtr-                  dotted  16
    gitlab                      glsoat-                 word    16
    gitlab                      glcbt-                  word    16
    gitlab                      GR1348941               word    16
    gitlab-session              _gitlab_session=        alnum   16
    grafana                     eyJrIjoi                base64  20
    grafana                     glc_                    base64  20
    grafana                     glsa_                   word    20
    groq                        gsk_                    alnum   20
    heroku                      HRKU-                   word    20
    highnote                    sk_highnote_            alnum   16
    honeycomb                   hcaik_                  alnum   20
    honeycomb                   hcxik_                  alnum   20
    huggingface                 hf_                     alnum   16
    huggingface                 api_org_                alnum   16
    infracost                   ico-                    alnum   20
    intra42                     s-s4t2                  word    20
    jina                        jina_                   word    20
    langfuse                    sk-lf-                  word    16
    langfuse                    pk-lf-                  word    16
    langsmith                   lsv2_                   word    20
    launchdarkly                api-                    hex     32
    linear                      lin_api_                alnum   16
    linear                      lin_oauth_              alnum   16
    lob                         test_                   hex     30
    lob                         live_                   hex     30
    lob                         test_pub_               hex     24
    lob                         live_pub_               hex     24
    mailgun                     key-                    hex     24
    mailgun                     pubkey-                 hex     24
    mercadopago                 APP_USR-                word    20
    neon                        napi_                   alnum   20
    new-relic                   NRAK-                   alnum   16
    new-relic                   NRII-                   word    16
    new-relic                   NRJS-                   alnum   12
    new-relic                   NRSP-                   word    16
    new-relic                   NRIQ-                   word    16
    new-relic                   NRRA-                   word    16
    new-relic                   NRBR-                   word    16
    notion                      ntn_                    alnum   20
    npm                         npm_                    alnum   20
    nvidia                      nvapi-                  word    20
    octopus-deploy              API-                    alnum   20
    onfido                      api_live.               dotted  16
    onfido                      api_sandbox.            dotted  16
    openai                      sk-proj-                word    16
    openai                      sk-svcacct-             word    16
    openai                      sk-admin-               word    16
    openai                      sk-or-v1-               hex     16
    openai                      sk-                     word    16
    openshift                   sha256~                 word    30
    paypal-braintree            access_token$           dotted  20
    perplexity                  pplx-                   alnum   20
    pinecone                    pcsk_                   word    20
    plaid                       access-sandbox-         word    20
    plaid                       access-development-     word    20
    plaid                       access-production-      word    20
    planetscale                 pscale_tkn_             dotted  16
    planetscale                 pscale_oauth_           dotted  16
    planetscale                 pscale_pw_              dotted  16
    posthog                     phc_                    alnum   20
    posthog                     phx_                    alnum   20
    postman                     PMAK-                   word    20
    postman                     PMAT-                   alnum   16
    prefect                     pnu_                    alnum   20
    prefect                     pnb_                    alnum   20
    pulumi                      pul-                    hex     20
    pypi                        pypi-Ag                 word    20
    readme                      rdme_                   alnum   20
    replicate                   r8_                     alnum   20
    rubygems                    rubygems_               hex     20
    scalingo                    tk-us-                  word    20
    sendgrid                    SG.                     dotted  40
    sentry                      sntrys_                 base64  20
    sentry                      sntryu_                 hex     20
    settlemint                  sm_aat_                 alnum   12
    settlemint                  sm_pat_                 alnum   12
    settlemint                  sm_sat_                 alnum   12
    shippo                      shippo_live_            alnum   20
    shippo                      shippo_test_            alnum   20
    shopify                     shpat_                  hex     20
    shopify                     shpca_                  hex     20
    shopify                     shppa_                  hex     20
    shopify                     shpss_                  hex     20
    shopify                     shpua_                  hex     20
    slack                       xapp-                   word    10
    slack                       xoxb-                   word    10
    slack                       xoxa-                   word    8
    slack                       xoxp-                   word    10
    slack                       xoxe-                   word    10
    slack                       xoxe.xox                dotted  10
    slack                       xoxo-                   word    10
    slack                       xoxr-                   word    8
    slack                       xoxs-                   word    10
    slack                       xoxc-                   word    10
    slack                       xoxd-                   dotted  10
    snyk                        snyk_                   dotted  20
    sonar                       squ_                    alnum   20
    sonar                       sqp_                    alnum   20
    sonar                       sqa_                    alnum   20
    sourcegraph                 sgp_                    word    20
    sourcegraph                 slk_                    alnum   20
    square                      sq0atp-                 word    16
    square                      sq0csp-                 word    16
    square                      sq0idp-                 word    16
    stripe                      sk_live_                word    10
    stripe                      sk_test_                word    10
    stripe                      sk_prod_                word    10
    stripe                      rk_live_                word    10
    stripe                      rk_test_                word    10
    stripe                      rk_prod_                word    10
    stripe                      pk_live_                word    10
    stripe                      pk_test_                word    10
    stripe-webhook              whsec_                  base64  16
    supabase                    sbp_                    word    20
    supabase                    sb_secret_              word    16
    tailscale                   tskey-                  word    16
    tavily                      tvly-                   word    16
    together                    tgp_v1_                 word    20
    toolcrib                    tcb_                    word    16
    toolcrib-session            tcs_                    word    16
    twilio                      SK                      hex     32
    twilio                      AC                      hex     32
    twitter-bearer              AAAAAAAAAAAAAAAAAAAAA   base64  30
    typeform                    tfp_                    dotted  20
    unkey                       unkey_                  word    16
    vault                       hvs.                    word    20
    vault                       hvb.                    word    20
    vault                       hvr.                    word    20
    vercel                      vcp_                    alnum   16
    vercel                      vca_                    alnum   16
    vercel                      vci_                    alnum   16
    vercel                      vcr_                    alnum   16
    vercel                      vck_                    alnum   16
    vercel-blob                 vercel_blob_rw_         word    16
    weights-and-biases          wandb_v1_               word    20
    xai                         xai-                    alnum   20
    yandex                      AQVN                    word    30
    zapier                      sk-ak-                  word    16
"""

BLOCKS: Final = r"""
      -----BEGIN[ A-Z0-9]{0,60}(?:PRIVATE[ ]KEY|PRIVATE[ ]KEY[ ]BLOCK)-----.*?
          (?:-----END[ A-Z0-9]{0,60}(?:PRIVATE[ ]KEY|PRIVATE[ ]KEY[ ]BLOCK)-----|\Z)
    | PuTTY-User-Key-File-[0-9].*?(?:Private-MAC:[ ]?[0-9a-f]+|\Z)
"""
"""Private keys of several lines."""

FORMS: Final = r"""
      eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+){1,3}
    | A3-[A-Z0-9]{6}-[A-Z0-9]{6,11}-[A-Z0-9]{5}(?:-[A-Z0-9]{5}){1,3}(?![\w-])
    | pat[A-Za-z0-9]{14}\.[0-9a-f]{30,}
    | (?:pat|sat)\.[\w-]{16,40}\.[A-Za-z0-9]{16,40}\.[A-Za-z0-9]{12,40}
    | (?:sc|ext|scauth|authress)_[A-Za-z0-9]{5,30}\.[A-Za-z0-9]{4,6}\.acc[_-][A-Za-z0-9-]{10,32}\.[\w+/=-]{30,120}
    | [\w~.]{3}\dQ~[\w~.-]{30,40}
    | [A-Za-z0-9]{14}\.atlasv1\.[\w=-]{50,80}
    | \d{15,16}(?:\||%7C|%)[\w-]{27,40}
    | \d{5,16}:A[\w-]{30,40}(?![\w-])
    | \d{15,25}-[A-Za-z0-9]{20,40}(?![\w-])
    | [MNO][\w-]{23,28}\.[\w-]{6}\.[\w-]{27,40}
    | [A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk
    | [0-9a-h]{32}-us\d{1,2}(?![\w-])
    | [0-9a-h]{32}-[0-9a-h]{8}-[0-9a-h]{8}(?![\w-])
    | [A-Za-z0-9+/]{86}==
    | (?=[0-9:]{0,16}[a-f])[0-9a-f]{8}:[0-9a-f]{8}(?![\w:.-])
"""
"""JSON web tokens, and secrets of several parts: Airtable, Harness, Authress, Azure, Terraform, Facebook,
Telegram, Twitter, Discord, MaxMind, Mailchimp, Mailgun, Azure storage, Sidekiq."""

WEBHOOKS: Final = r"""
      hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/
    | discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/
    | [a-z0-9.-]{1,100}\.webhook\.office\.com/webhookb2/
    | outlook\.office(?:365)?\.com/webhook/
    | hooks\.zapier\.com/hooks/
    | hook\.[a-z0-9.]{1,20}make\.com/
    | maker\.ifttt\.com/trigger/
    | chat\.googleapis\.com/v1/spaces/
    | api\.telegram\.org/(?:file/)?bot
    | [a-z0-9.-]{1,100}\.logic\.azure\.com
    | [a-z0-9.-]{1,100}\.m\.pipedream\.net/
    | oapi\.dingtalk\.com/robot/
    | open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/
    | qyapi\.weixin\.qq\.com/cgi-bin/webhook/
    | webhook\.site/
"""
"""Beginnings of URLs whose remainder is the secret."""


def rows() -> tuple[tuple[str, str, str, int], ...]:
    """Return the table of prefixes: kind, prefix, character class, minimum length."""
    parted = (line.split() for line in PREFIXES.strip().splitlines())
    return tuple((kind, prefix, characters, int(least)) for kind, prefix, characters, least in parted)


@cache
def secret_pattern() -> re.Pattern[str]:
    """Return the pattern of every single-word kind. It does not match inside a longer word."""
    shapes: dict[tuple[str, int], list[str]] = {}
    for _, prefix, characters, least in rows():
        shapes.setdefault((characters, least), []).append(prefix)
    known = "|".join(
        f"{any_of(prefixes)}{_CLASSES[characters]}{{{least},}}+" for (characters, least), prefixes in shapes.items()
    )
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{_squeeze(FORMS)}|{known})", re.ASCII)


@cache
def block_pattern() -> re.Pattern[str]:
    """Return the pattern of multi-line secrets; a truncated one extends to the end of the text."""
    return re.compile(_squeeze(BLOCKS), re.DOTALL | re.ASCII)


@cache
def webhook_pattern() -> re.Pattern[str]:
    """Return the pattern of webhook URLs: the first group is kept, the rest of the URL is the secret."""
    return re.compile(rf"((?:https?://)?(?:{_squeeze(WEBHOOKS)}))([^\s\"'<>\\]+)", re.IGNORECASE | re.ASCII)


def _squeeze(verbose: str) -> str:
    """Remove the layout of a verbose pattern; a literal blank is written as `[ ]`."""
    return re.sub(r"(?<!\[)\s+(?!\])", "", verbose)
