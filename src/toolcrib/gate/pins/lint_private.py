"""Signs of text that is after private data: files with secrets, the conversation, data that leaves the machine.

A definition that only speaks of a password or an API key, as every login does, has no sign. An argument that is added
later has no reason to do even that: `TOPICS`.

Pure. Every repetition is bounded.
"""

import re
from typing import Final

from toolcrib.gate.pins.lint_signs import Context, Severity, Sign, sign


def _private(reason: str, source: str, *needs: str, severity: Severity = "hold", unless: Context | None = None) -> Sign:
    return sign(
        f"speaks of secrets or private data ({reason})",
        "tool.names_credentials",
        source,
        *needs,
        severity=severity,
        unless=unless,
    )


def _file(source: str, *needs: str) -> tuple[Sign, Sign]:
    """Return two signs: a file that is read or passed on holds, any other mention of it is a warning."""
    what = "a file with secrets"
    return (
        _private(what, source, *needs, unless="inspected"),
        _private(what, source, *needs, severity="warn", unless="defensive"),
    )


_SECRET = r"""(?:passwords?|passphrases?|credentials?|(?:private|secret|api|ssh|access|encryption)[-_\ ]?keys?
    |(?:access|auth|session|api|bearer|refresh)[-_\ ]?tokens?|secrets|seed\ phrases?|session\ cookies)"""
_SECRET_WORDS = (
    "password passphrase credential private secret api ssh access encryption auth session bearer refresh seed"
)

_FILES = (
    *_file(
        r"""/\.(?:ssh(?!/(?:config|known_hosts)\b)|aws|gnupg|netrc|npmrc|pypirc|kube|docker|cursor|claude|azure|mozilla
                |password-store|config/gh|git-credentials)
            \b | /\.(?:bash|zsh)(?:rc|_history)\b""",
        "ssh aws gnupg netrc npmrc pypirc kube docker cursor claude azure mozilla password config git bash bashrc "
        "zsh zshrc",
    ),
    *_file(
        r"(?<![\w*/])\.(?:ssh(?!/(?:config|known_hosts)\b)|aws|gnupg|netrc|npmrc|pypirc|kube)(?:/|\b)",
        "ssh aws gnupg netrc npmrc pypirc kube",
    ),
    *_file(r"/etc/(?:passwd|shadow|sudoers)\b", "etc"),
    *_file(r"\b(?:cursor|claude)/mcp\.json\b", "mcp", "cursor claude"),
    *_file(r"\bclaude_desktop_config\b", "desktop", "claude"),
    *_file(r"/proc/(?:self|\d{1,7}|\[pid\])/(?:environ|mem|maps)\b", "proc"),
    *_file(
        r"\bid[_\ ](?:rsa|dsa|ecdsa|ed25519)\b | \bauthorized[_\ ]keys\b",
        "id authorized",
        "rsa dsa ecdsa ed25519 keys",
    ),
    *_file(
        r"""\b(?:contents?|include|send|upload|pass|copy|copies|attach|put|paste|dump|e-?mail|post|leak)\b[^.\n]{0,40}
            (?<![\w*])\.env\b
          | (?<![\w*])\.env\b[^.\n]{0,40}\b(?:and|then)\b[^.\n]{0,20}\b(?:send|pass|include|upload|attach|return|append
                |put)\b""",
        "env",
        "content include send upload pass copy copies attach put paste dump email mail post leak return append",
    ),
    _private(
        "environment variables",
        r"""\b(?:print|output|dump|list|send|return|include|leak|reveal|collect|read)\b[^.\n]{0,12}\b(?:your|all
                |user'?s?|the\ host'?s?)\b
            [^.\n]{0,12}\benv(?:ironment)?[-_\ ]?var(?:iable)?s?\b[^.\n]{0,30}\b(?:and|then|to|as|in)\b[^.\n]{0,20}
            \b(?:secrets?|keys|tokens|send|pass|include|credentials|response|answer|argument|parameter)\b""",
        "environment env",
        "print output dump list send return include leak reveal collect read",
        unless="defensive",
    ),
    _private(
        "environment variables",
        r"""\b(?:os\.environ|process\.env|printenv)\b
          | \b(?:all|every|full|complete|entire|host|values?\ of|contents?\ of|dump\ of|your|user'?s)
            \b[^.\n]{0,20}\benv(?:ironment)?[-_\ ]?var(?:iable)?s?\b""",
        "environ environment env printenv",
        severity="warn",
    ),
)
_DEMANDS = (
    _private(
        "secrets of the user",
        rf"""\b(?:include|attach|append|embed|insert|copy|paste|forward|upload|leak|put|harvest|steal|exfiltrate|bundle)
            (?:s|es|ing)?\b[^.\n]{{0,30}}
            \b(?:user'?s?|their|your|any|all|stored|saved|local|found|existing|environment)\b[^.\n]{{0,20}}\b{_SECRET}\b
          | \b(?:leak|steal|exfiltrate|harvest)(?:s|ing)?\b[^.\n]{{0,20}}\b{_SECRET}\b
          | \b(?:reveal|print|output|expose|dump|transmit)(?:s|ing)?\b[^.\n]{{0,20}}
            \b(?:all|any|every|your|user'?s?|their|environment|stored|local|system)\b[^.\n]{{0,20}}\b{_SECRET}\b
          | \b(?:send|post|e-?mail|share)(?:s|ing)?\b[^.\n]{{0,12}}\b(?:user'?s|their|all|any|stored|saved
                |local)\b[^.\n]{{0,20}}\b{_SECRET}\b
          | \b(?:read|fetch|collect|gather|look\ up|find)\b[^.\n]{{0,20}}\b(?:user'?s|their|all|any|local|stored
                |saved)\b
            [^.\n]{{0,20}}\b{_SECRET}\b[^.\n]{{0,60}}\b(?:and|then)\b[^.\n]{{0,20}}
            \b(?:send|pass|include|add|put|append|forward|upload|return)\b""",
        _SECRET_WORDS,
        "include attach append embed insert copy copying paste forward upload leak put harvest steal exfiltrate bundle "
        "read fetch collect gather look find reveal print output expose dump transmit send post email share",
        unless="defensive",
    ),
    _private(
        "secrets of the user",
        r"\b(?:seed|recovery)\ phrase\b | \bmnemonic\ (?:phrase|words?)\b | \bbrowser\ cookies\b",
        "seed recovery mnemonic browser",
        "phrase words cookies",
        severity="warn",
    ),
    _private(
        "personal data",
        r"""\b(?:extract|collect|gather|harvest|include|add|send|pass|attach)\b[^.\n]{0,30}
            \b(?:user'?s?\ personal\ (?:data|information|details)|credit\ cards?|social\ security|contacts\ of
                |user'?s?\ contacts|user'?s?\ phone|user'?s?\ clipboard|clipboard\ contents?)\b""",
        "personal credit social contact phone clipboard",
        "extract collect gather harvest include add send pass attach",
        unless="defensive",
    ),
)
_VARIABLES = (
    _private(
        "the value of a variable",
        r"\b(?:values?|contents?)\ of\ (?:the\ )?\$?[a-z]\w{0,40}_(?:secret|token|password|key)(?:_\w{1,20})?\b",
        "value content",
        "secret token password key",
    ),
)
_CONVERSATION = (
    _private(
        "the conversation",
        r"""\b(?:include|send|pass|provide|attach|append|add|put|copy|forward|upload|output|insert|embed)
            (?:\ (?!(?:to|in|from|into|on|of)\b)[\w'’-]{1,16}){0,3}
            \ (?:entire|full|whole|complete|previous|prior|verbatim)\ (?:\w{2,12}\ )?
            (?:conversations?|chats?|context\ window|dialog(?:ue)?s?|(?:system\ )?context|user\ (?:messages?|inputs?)
                |(?:message|prompt|tool[-_\ ]?calls?)[-_\ ](?:history|log|transcript)s?)\b
          | \b(?:include|pass|attach|append|embed|insert|copy)(?:\ (?!(?:to|in|from|into|on|of)\b)[\w'’-]{1,16}){0,2}
            \ (?:all|last|recent|current|user's|users'|your)\ (?:\w{2,12}\ )?(?:messages?|conversations?|chats?
                |prompts?)\b
          | \b(?:include|send|pass|attach|append|put|copy|forward|upload|output|insert|embed|summari[sz]e)
            (?:\ (?!(?:to|in|from|into|on|of)\b)[\w'’-]{1,16}){0,3}
            \ (?:conversation|chat|prompt|tool[-_\ ]?calls?)[-_\ ](?:history|log|transcript)s?\b""",
        "conversation chat context user dialog dialogue message prompt tool toolcall",
        "include send pass provide attach append add put copy forward upload output insert embed summarise summarize",
    ),
    _private(
        "the conversation",
        r"""\b(?:entire|full|whole|complete|verbatim)\ (?:user\ )?(?:conversation|chat|dialog(?:ue)?)\b
          | \b(?:conversation|tool[-_\ ]?calls?)[-_\ ](?:history|log|transcript)s?\b""",
        "conversation chat dialog dialogue tool toolcall",
        "entire full whole complete verbatim history histories log transcript",
        severity="warn",
    ),
    _private(
        "the reasoning of the model",
        r"""\bchain[-_\ ]of[-_\ ]thought\b | \b(?:your|model'?s?)\ (?:internal\ )?(?:reasoning|thoughts?|thinking)\b
            [^.\n]{0,30}\b(?:here|as|in)\ (?:this|the)\b""",
        "chain reasoning thought thinking",
        "thought your model",
    ),
    _private(
        "the identity of the model",
        r"""\b(?:name|identity|version|id)\ of\ (?:the|your)\ (?:llm|language\ model|ai\ model|llm\ model|assistant
                |calling\ model)
            \b[^.\n]{0,30}\b(?:that|which|who)\ (?:calls?|uses?|is\ (?:calling|using))\b
          | \b(?:llm|calling[-_\ ]model|assistant)[-_\ ](?:model[-_\ ])?(?:name|identity|version)\b
          | \byour[-_\ ]model[-_\ ]name\b""",
        "llm ai assistant calling language your",
        "name identity version id",
        "model llm assistant",
    ),
    _private(
        "other tools and their results",
        r"""\b(?:list
                |names?)\ of\ (?:all\ )?(?:your\ )?(?:the\ )?(?:other\ )?(?:available\ )?tools\b[^.\n]{0,20}\b(?:you
                |your)\b
          | \b(?:names?|list)\ of\ (?:all\ )?(?:the\ )?(?:your\ |other\ )?tools\ (?:that\ )?you\b
          | \b(?:results?|outputs?|responses?)\ of\ (?:all\ |any\ )?(?:other|previous)\ tools?\b""",
        "tool",
        "list name result output response",
        "you your other previous",
    ),
)
_LEAVING = (
    _private("data that is sent elsewhere", r"\bbcc\b[^.\n]{0,20}[\w+-]{1,40}@[\w-]{1,40}\.", "bcc"),
    _private(
        "data that is sent elsewhere",
        r"""\b(?:send|post|upload|forward|transmit|submit|deliver|bcc|copy|copies|relay|mirror|report|e-?mail)(?:s|ing
                |ed)?\b
            [^.\n]{0,80}\b(?:to|at)\b[^.\n]{0,30}\b(?:attacker|my\ (?:server|e-?mail|address)|collector|drop\ zone)\b
          | \b(?:send|post|upload|forward|transmit|submit|deliver|bcc|copy|copies|relay|mirror|e-?mail)(?:s|ing|ed)?\b
            (?!\ (?:\w{1,12}\ ){0,2}(?:feedback|bugs?|issues?|requests?|questions?|comments?|quer(?:y|ies))\b)
            [^.\n]{0,80}\b(?:to|at)\b[^.\n]{0,30}
            (?:https?://(?!(?:api|docs|www)\.)|[\w+-]{1,40}@[\w-]{1,40}\.|\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b)""",
        "send post upload forward transmit submit deliver bcc copy copies copying relay mirror report email mail",
        "to at",
        unless="defensive",
    ),
    _private(
        "data that is sent elsewhere",
        r"""\b(?:send|post|upload|forward|transmit|submit|deliver|copy|copies|relay|mirror|report|e-?mail)(?:s|ing
                |ed)?\b
            [^.\n]{0,80}\b(?:to|at)\b[^.\n]{0,30}
            \b(?:an?|our|the|some|its)\ (?:external|remote|third[-\ ]party|outside|unknown|hidden)\ (?:\w{1,16}\ ){0,2}
            (?:endpoints?|servers?|hosts?|collectors?|address(?:es)?|webhooks?|url|part(?:y|ies)|sinks?)""",
        "send post upload forward transmit submit deliver copy copies copying relay mirror report email mail",
        "external remote third outside unknown hidden",
        unless="chosen",
    ),
)

PRIVATE: Final = (*_FILES, *_DEMANDS, *_VARIABLES, *_CONVERSATION, *_LEAVING)

TOPICS: Final = re.compile(
    rf"""\b{_SECRET}\b | (?<!\w)\.env\b | \bkeychain\b | \bmcp\.json\b | (?:~|\$home|/home/\w{{1,64}}|/root)/\.[a-z]
      | \b[A-Z][A-Z0-9]{{1,20}}_(?:[A-Z0-9]{{2,20}}_){{0,4}}(?:SECRET|TOKEN|PASSWORD|KEY)(?:_[A-Z]{{2,10}})?\b
      | \b(?:conversation|chat|dialog(?:ue)?|message|tool[-_\ ]?calls?|prompt)[-_\ ](?:history|log|transcript)s?\b
      | \b(?:entire|full|whole|complete|previous|prior|all|recent|current|last|user'?s?)\b[^.\n]{{0,20}}
        \b(?:conversations?|chats?|context\ window|user\ messages?|user\ inputs?|system\ context)\b
      | \b(?:your|internal|model'?s?)\ (?:reasoning|thoughts?|thinking)\b | \btools?\ list\b
                | \bsystem[-_\ ]prompts?\b""",
    re.VERBOSE | re.IGNORECASE,
)
"""Secrets and private data as a topic."""
