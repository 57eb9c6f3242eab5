"""The signs of text that is meant for the model rather than for the person choosing the tool.

Each class of poisoning has its signs: orders to the model, concealment from the user, faked conversation turns, orders
about other tools, commands to run, credentials and private files, and exfiltration. A sign is a pattern and the words
without which it cannot match: searching for words costs a tenth of the pattern.

Pure. Every repetition is bounded, because texts come from outside.
"""

import re
from typing import NamedTuple


class Sign(NamedTuple):
    """A pattern, and groups of words. A matching text contains one word of each group.

    `folded` is the same pattern for case-folded text, where it runs several times as fast. A sign without it is
    case-sensitive.
    """

    groups: tuple[tuple[str, ...], ...]
    pattern: re.Pattern[str]
    folded: re.Pattern[str] | None = None

    def is_in(self, text: str, folded: str) -> bool:
        """Return whether the sign occurs in a text, which is also passed in its case-folded form."""
        for words in self.groups:
            for word in words:
                if word in folded:
                    break
            else:
                return False
        found = self.pattern.search(text) if self.folded is None else self.folded.search(folded)
        return found is not None


def _sign(words: tuple[str, ...], pattern: str, *more: tuple[str, ...]) -> Sign:
    return Sign((words, *more), re.compile(pattern, re.VERBOSE | re.IGNORECASE), re.compile(pattern, re.VERBOSE))


_PEOPLE = ("user", "human", "person", "owner", "operator", "anyone", "customer", "nobody")
_NOT = ("not", "n't", "n\u2019t", "dont", "never", "without", "avoid", "refrain", "no need")
_MUST = r"(?:must|has\ to|have\ to|is\ required\ to|are\ required\ to|needs?\ to|shall)"

_ORDERS = (
    _sign(
        ("ignore", "disregard", "forget", "override", "overrule", "bypass"),
        r"""\b(?:ignore|disregard|forget|override|overrule|bypass)\b[^.\n]{0,40}
            \b(?:previous|prior|above|earlier|preceding|other|all|any|your|these|safety|existing|user'?s?)\b
            [^.\n]{0,40}
            \b(?:instructions?|rules?|prompts?|messages?|guidelines?|polic(?:y|ies)|restrictions?|directives?
                |safeguards?|constraints?|commands?|requests?)\b""",
    ),
    _sign(
        ("you must", "you have to", "you are required", "you need to", "you should", "you shall"),
        r"""\byou\ (?:must|have\ to|are\ required\ to|need\ to|shall|should)
            \ (?:first|always|also|never|not|call|read|include|send|pass|run|execute|copy|forward|append|ignore
                |obey|follow|reply|respond|answer|repeat)\b""",
    ),
    _sign(
        ("system prompt", "jailbreak", "developer message", "developer mode", "system message", "system instruction"),
        r"\b(?:system[-_\ ]prompts?|jailbreak\w{0,6}|developer\ (?:message|mode)|system\ (?:message|instruction)s?)\b",
    ),
    _sign(
        ("you are now", "from now on", "your real", "your true", "your actual", "your new", "your primary", "pretend"),
        r"""\b(?:you\ are\ now|from\ now\ on|pretend\ (?:to\ be|that|you)
            |your\ (?:real|true|actual|new|primary)
             \ (?:task|goal|purpose|objective|mission|instructions?|role|job))\b""",
    ),
    _sign(
        ("important", "critical", "urgent", "attention", "mandatory", "notice", "warning"),
        r"""\b(?:important|critical|urgent|attention|mandatory|notice|warning)\b\W{1,6}[^.\n]{0,60}
            \b(?:you|assistants?|agents?|ai|llms?|claude|chatgpt|copilot)\b[^.\n]{0,40}
            \b(?:must|should|always|never|needs?\ to|have\ to|has\ to|required)\b""",
        ("must", "should", "always", "never", "need", "have to", "has to", "required"),
    ),
    _sign(
        ("assistant", "agent", "ai ", "llm", "language model", "claude", "chatgpt", "copilot"),
        rf"""\b(?:assistants?|agents?|ai|llms?|language\ models?|claude|chatgpt|copilot)\ (?:{_MUST}|should)
            \ (?:first|always|also|never|not|call|read|include|send|pass|run|execute|copy|forward|ignore)\b""",
    ),
    _sign(
        ("ignorier", "ignorez", "ignora", "忽略", "无视", "無視", "игнорир", "vergiss", "oublie", "olvida"),
        r"""\b(?:ignorier\w{0,3}|ignorez|ignora\w{0,3}|vergiss|oublie\w{0,2}|olvida\w{0,2}|игнорир\w{0,6})\b[^.\n]{0,60}
            \b(?:anweisung\w{0,3}|regeln|instru\w{2,10}|consignes|r[eè]gles|reglas|regras|инструкци\w{0,3}|правил\w{0,2})
          | (?:忽略|无视|無視)[^。\n]{0,30}(?:指令|指示|说明|規則|规则|命令)""",
    ),
)
_CONCEALMENT = (
    _sign(
        _NOT,
        r"""(?:\b(?:do|does|must|should|shall|need|can|may)\ ?(?:not|n[’']?t)|\bdont|\b(?:never|without|avoid)
               |\brefrain\ from|\bno\ need\ to)\b[^.\n]{0,30}
            \b(?:tell|telling|mention(?:ing)?|inform(?:ing)?|reveal(?:ing)?|notify(?:ing)?|ask(?:ing)?|disclos(?:e|ing)
                |alert(?:ing)?|warn(?:ing)?|show(?:ing)?|discuss(?:ing)?|explain(?:ing)?|let|confirm(?:ing)?)\b
            [^.\n]{0,40}\b(?:users?|human|person|owner|operator|anyone|customer)\b""",
        _PEOPLE,
    ),
    _sign(
        ("know", " see", "aware", "notice", "told", "informed", "find out", "learn"),
        r"""\b(?:users?|human|person|owner|operator|customer|nobody)\b[^.\n]{0,20}
            \b(?:(?:must|should|does|do|need|can|will)\ ?(?:not|n[’']?t)|never|nobody)\b[^.\n]{0,20}
            \b(?:know|see|be\ aware|notice|be\ told|be\ informed|find\ out|learn)\b""",
        _PEOPLE,
        _NOT,
    ),
    _sign(
        ("hidden", "hide", "invisible", "conceal", "secret", "unseen"),
        r"""\b(?:hidden|hide|invisible|conceal(?:ed)?|secret|unseen)\b[^.\n]{0,20}\b(?:from|to)\b[^.\n]{0,12}
            \b(?:users?|human|person|owner|operator|customer|anyone)\b""",
        _PEOPLE,
    ),
    _sign(
        ("without",),
        r"""\bwithout\b[^.\n]{0,12}\b(?:user|human|owner|operator|person|customer)(?:'s|s'|s)?
            \ (?:knowledge|consent|approval|permission|awareness|noticing|knowing)\b""",
        _PEOPLE,
    ),
    _sign(
        ("mention", "reveal", "disclose"),
        r"""\b(?:do\ not|don[’']t|never|must\ not|without)\ (?:mention|reveal|disclos)(?:e|ing)?\b[^.\n]{0,40}
            \b(?:this|it|that|answer|response|reply|output|anything)\b""",
    ),
    _sign(
        ("secret", "covert", "silent", "quiet", "stealth", "between us", "confidential", "hidden"),
        r"""\b(?:secretly|covertly|stealthily|between\ us
              |(?:silently|quietly)\ (?:add|append|call|copy|forward|include|pass|read|send|upload|run|execute|bcc))\b
          | \bkeep\ (?:this|it|that|these|the\ following)\b[^.\n]{0,20}
            \b(?:secret|hidden|confidential|private|quiet)\b""",
    ),
    _sign(
        ("告诉", "告知", "sagen", "informier", "dites", "digas", "informe", "сообща", "говори", "ユーザー"),
        r"""(?:不要|请勿|别|不得)[^。\n]{0,12}(?:告诉|告知|通知|提及)|ユーザー[^。\n]{0,10}(?:伝え|知らせ|言わ)
          | \bnicht\b[^.\n]{0,30}\b(?:sagen|mitteilen|informier\w{0,3}|erw[äa]hnen)\b
          | \bne\b[^.\n]{0,10}\b(?:dites|informez|mentionnez)\b|\bno\b[^.\n]{0,12}\b(?:digas|informes|menciones)\b
          | \bне\b[^.\n]{0,12}\b(?:сообща\w{0,3}|говори\w{0,3}|упомина\w{0,3})""",
    ),
)
_CONSENT = (
    _sign(
        ("confirm", "approv", "consent", "permission", "logging", "safety", "verification", "authori"),
        r"""\b(?:skip|bypass|disable|suppress|circumvent|without|avoid|no
                |(?:do\ not|don[’']t|never)\ (?:ask|wait|request))\b[^.\n]{0,30}
            \b(?:confirmations?|approvals?|consent|permission\ (?:prompts?|checks?)|logging|safety\ \w{3,12}
                |verification)\b
          | \buser\b[^.\n]{0,20}\b(?:already|pre-?)[-\ ]?(?:approved|consented|authori[sz]ed|confirmed|agreed)\b
          | \bapprove\ automatically\b | \bauto-?approved?\b""",
    ),
    _sign(
        ("tell the user", "telling the user", "convince the user", "ask the user to visit"),
        r"\b(?:tell(?:ing)?|convinc(?:e|ing)|persuade)\ the\ user\ (?:that|to|their|they|it)\b",
    ),
)
_FAKED_TURNS = (
    _sign(
        ("<",),
        r"""<\s{0,3}/?\s{0,3}\|?\s{0,3}
            (?:important|system|instructions?|secret|hidden|admin|critical|assistant|developer|im_start|im_end
              |user_query|thinking|override|sys|endoftext|start_header_id|tool_description|rules?)\b[^>\n]{0,40}>""",
    ),
    _sign(
        ("[system", "[inst", "[/inst", "[admin", "[important", "[developer", "[instruction", "[assistant"),
        r"\[\s{0,2}/?\s{0,2}(?:system|inst|admin|important|developer|instructions?|assistant)\b[^\]\n]{0,40}\]",
    ),
    _sign(
        ("#", "---", "===", "**"),
        r"""(?:\#{1,6}|-{3,}|={3,}|\*{2,})\s{0,3}(?:begin|end|start|new|system|hidden|admin|developer)?\s{0,3}
            (?:system|instructions?|assistant|admin|developer|human)\b[^\n]{0,20}(?::|\#|-{3}|={3}|\*{2})""",
        ("system", "instruction", "assistant", "human", "admin", "developer"),
    ),
    _sign(
        ("system:", "assistant:", "human:", "developer:", "system :", "assistant :", "human :", "developer :"),
        r"(?:^|\n)\s{0,8}(?:system|assistant|human|developer)\s{0,2}:\s",
    ),
)
_OTHER_TOOLS = (
    _sign(
        ("before", "after", "prior to", "whenever", "instead of", "every time", "each time"),
        r"""\b(?:before|after|prior\ to|whenever|instead\ of|every\ time|each\ time)\b[^.\n]{0,40}
            \b(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|run(?:ning)?)\b[^.\n]{0,40}\b(?:any|other|another|this|all)\b
            [^.\n]{0,60}\b(?:you\ must|must|always|first|read|send|include|pass|call)\b""",
        ("us", "call", "invok", "run"),
        ("must", "always", "first", "read", "send", "include", "pass", "call"),
    ),
    _sign(
        ("this tool", "this function"),
        rf"""\b(?:always|must|only|first)\b[^.\n]{{0,20}}\b(?:use|prefer|choose|select|call|invoke|run)\b[^.\n]{{0,12}}
            \bthis\ (?:tool|function)\b
          | \bthis\ (?:tool|function)\ (?:{_MUST}|should)\ (?:always\ |first\ )?be\ (?:always\ |first\ )?
            (?:called|used|invoked|run|executed|preferred|chosen)\b""",
        ("always", "must", "only", "first", "should", "shall", "need", "required", "to be "),
    ),
    _sign(
        ("instead of", "rather than", "in place of", "not use", "t use", "never use", "avoid", "replace", "supersede"),
        r"""\b(?:instead\ of|rather\ than|in\ place\ of|do\ not\ use|don[’']t\ use|never\ use|avoid|replaces?
                 |supersedes?)\b[^.\n]{0,20}\b(?:any|all|other|another|every|existing)\b[^.\n]{0,20}
            \b(?:tools?|functions?|servers?)\b""",
        ("tool", "function", "server"),
    ),
    _sign(
        ("deprecated", "broken", "insecure", "unsafe", "disabled", "outdated", "obsolete"),
        r"""\b(?:other|all|existing)\b[^.\n]{0,12}\btools?\b[^.\n]{0,20}
            \b(?:deprecated|broken|insecure|unsafe|disabled|outdated|obsolete)\b""",
        ("tool",),
    ),
    _sign(
        ("when", "if ", "every time", "each time"),
        r"""\b(?:when(?:ever)?|if|every\ time|each\ time)\b[^.\n]{0,60}
            \b(?:tools?|functions?|e-?mails?|messages?|payments?|transfers?|transactions?|commands?)\b[^.\n]{0,60}
            \b(?:change|modify|replace|redirect|substitute|bcc|forward|prepend
                |(?:also|always)\ (?:send|call|add|include))\b""",
        ("change", "modify", "replace", "redirect", "substitute", "bcc", "forward", "prepend", "also", "always"),
    ),
)
_REROUTING = (
    _sign(
        ("invoked", "called", "used", "executed"),
        r"""\b(?:when(?:ever)?|if|once|after|before|every\ time|each\ time)\b[^.\n]{0,60}
            \b(?:invoked|called|used|executed)\b[^.\n]{0,30}
            \b(?:change|modify|replace|redirect|substitute|set|use|send|add|append|insert)\b""",
        ("change", "modify", "replace", "redirect", "substitute", "set", "use", "send", "add", "append", "insert"),
    ),
    _sign(
        ("routed", "forwarded", "redirected", "copied", "sent to", "bcc"),
        r"""\b(?:all|every|each|any)\b[^.\n]{0,20}
            \b(?:transactions?|payments?|transfers?|e-?mails?|messages?|requests?|traffic|files?|data|orders?)\b[^.\n]{0,20}
            \b(?:routed|forwarded|redirected|copied|sent|bcc)\b""",
    ),
    _sign(
        ("priority", "always be", "preferred over", "prefer this", "preferred tool"),
        r"""\bhigher\ priority\ than\b | \bshould\ always\ be\ (?:chosen|preferred|used|called)\b
          | \bpreferred\ over\b[^.\n]{0,20}\b(?:other|all|any)\b | \bprefer\ this\ (?:tool|over)\b""",
    ),
    _sign(
        ("always",),
        r"""\balways\ (?:append|include|send|add|attach|pass|copy|forward|prepend|insert|set)\b[^.\n]{0,30}
            \b(?:user|conversation|chat|message|file|prompt|session|previous)\w{0,3}\b""",
    ),
    _sign(
        ("agents", "assistant", " ai", "llm", "models"),
        r"""\b(?:notes?|messages?|instructions?|reminders?|attention|notice)\ (?:to|for)\ (?:all\ |any\ |the\ )?
            (?:ai|llms?|language\ models?|models|agents|assistants?|(?:ai|llm)\ (?:agents?|assistants?|models?))\b""",
    ),
    _sign(
        ("config", "bashrc", "crontab", "zshrc", "settings", "profile"),
        r"""\b(?:modify|change|edit|write|append|add|update|overwrite)\b[^.\n]{0,40}
            (?:\bmcp[-_\ ]?config|\.(?:bash|zsh)rc\b|\bcrontab\b|\bshell\ profile\b|\bsettings\ so\ that\b)""",
    ),
)
_COMMANDS = (
    _sign(("curl", "wget"), r"\b(?:curl|wget)\s[^\n]{0,40}https?://"),
    _sign(("rm -",), r"\brm\s+-[rf]{1,2}\b"),
    _sign(("sh",), r"\|\s{0,3}(?:ba|z)?sh\b | \b(?:ba|z)?sh\s+-c\b", ("|", "sh -c", "sh  -c")),
    _sign(
        ("/dev/tcp", "base64 ", "powershell", "chmod", "nc -"),
        r"""/dev/tcp/ | \bbase64\s+(?:-d|--decode)\b | \bpowershell\b[^\n]{0,20}-e | \bchmod\s+\+x\b | \bnc\s+-""",
    ),
)
_SECRETS = (
    _sign(("password", "passphrase", "credential"), r"\b(?:passwords?|passphrases?|credentials?)\b"),
    _sign(
        ("key", "token"),
        r"\b(?:(?:private|secret|api|ssh)[-_\ ]?keys?|access[-_\ ]?tokens?)\b",
        ("private", "secret", "api", "ssh", "access"),
    ),
    _sign(
        (
            *(".ssh", ".aws", ".gnupg", ".netrc", ".npmrc", ".pypirc", ".kube", ".env", ".git-cred", "mcp.json"),
            *("claude_desktop_config", "_history", "~/.", "$home/.", "/home/", "/root/.", "/users/", "/etc/", "/proc/"),
        ),
        r"""(?:~|\$home|/home/\w{1,64}|/root|/users/\w{1,64})/\.[a-z]
          | (?<!\w)\.(?:ssh|aws|gnupg|netrc|npmrc|pypirc|kube|env)\b | /etc/(?:passwd|shadow|sudoers)\b
          | \bmcp\.json\b | \bclaude_desktop_config\b | \.(?:bash|zsh)_history\b | \.git-credentials\b
          | /proc/(?:self|\d{1,7})/""",
    ),
    _sign(
        ("id_", "id rsa", "id dsa", "id ecdsa", "id ed25519", "authorized"),
        r"\bid[_\ ](?:rsa|dsa|ecdsa|ed25519)\b | \bauthorized[_\ ]keys\b",
    ),
    _sign(
        ("seed phrase", "mnemonic", "keychain", "cookies"),
        r"""\bseed\ phrase\b | \bmnemonic\ (?:phrase|words?)\b | \bkeychain\b | \b(?:browser|session)\ cookies\b""",
    ),
    Sign(
        (("secret", "token", "password", "key"),),
        re.compile(r"\b[A-Z][A-Z0-9]{1,20}_(?:[A-Z0-9]{2,20}_){0,4}(?:SECRET|TOKEN|PASSWORD|KEY)(?:_[A-Z]{2,10})?\b"),
    ),
    _sign(
        ("personal", "credit card", "social security", "contacts", "phone number"),
        r"""\b(?:extract|collect|gather|harvest|store|include|add|send|pass|attach)\b[^.\n]{0,30}
            \b(?:personal\ (?:data|information|details)|credit\ cards?|social\ security|contacts\ of|user'?s?\ contacts
                |user'?s?\ phone)\b""",
    ),
    _sign(
        ("environ", "process.env", "env var"),
        r"""\b(?:os\.environ|process\.env|printenv)\b
          | \b(?:all|every|full|complete|entire|current|process|host|values?\ of|contents?\ of|dump\ of|your|user'?s)
            \b[^.\n]{0,20}\benv(?:ironment)?[-_\ ]?var(?:iable)?s?\b""",
    ),
)
_CONVERSATION = (
    _sign(
        ("history", "histories", "log", "transcript"),
        r"\b(?:conversation|chat|dialog(?:ue)?|message|tool[-_\ ]?calls?|prompt)[-_\ ](?:history|log|transcript)s?\b",
        ("conversation", "chat", "dialog", "message", "tool", "prompt"),
    ),
    _sign(
        ("conversation", "chat", "context window", "user message", "user input", "dialog", "system context"),
        r"""\b(?:entire|full|whole|complete|previous|prior|all|recent|current|last|user'?s?|verbatim)\b[^.\n]{0,20}
            \b(?:conversations?|chats?|context\ window|user\ messages?|user\ inputs?|dialog(?:ue)?s?
                |system\ context)\b""",
    ),
    _sign(
        ("chain of thought", "chain-of-thought", "reasoning", "thought", "thinking"),
        r"""\bchain[-\ ]of[-\ ]thought\b | \b(?:your|internal|model'?s?)\ (?:reasoning|thoughts?|thinking)\b""",
        ("chain", "your ", "internal ", "model"),
    ),
    _sign(
        ("tools", "tool list", "tool "),
        r"""\b(?:list|names?)\ of\ (?:all\ )?(?:your\ )?(?:the\ )?(?:other\ )?(?:available\ )?tools\b
          | \btools?\ list\b | \b(?:results?|outputs?|responses?)\ of\ (?:all\ |any\ )?(?:other|previous)\ tools?\b""",
        ("list of", "name of", "names of", "tools list", "tool list", "result", "output of", "outputs of", "response"),
    ),
)
_LEAVING = (
    _sign(
        ("send", "post", "upload", "forward", "transmit", "submit", "exfiltrat", "leak", "bcc", "deliver", "copy"),
        r"""\b(?:send|post|upload|forward|transmit|submit|deliver|bcc|copy)(?:s|ing|ed)?\b[^.\n]{0,80}\b(?:to|at)\b
            [^.\n]{0,30}(?:https?://|[\w+-]{1,40}@[\w-]{1,40}\.|\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b
                          |\b(?:attacker|me|us|my\ (?:server|e-?mail|address))\b)
          | \bexfiltrat\w{0,4}\b""",
    ),
)

INSTRUCTS = (*_ORDERS, *_CONCEALMENT, *_CONSENT, *_FAKED_TURNS, *_OTHER_TOOLS, *_REROUTING, *_COMMANDS)
PRIVATE = (*_SECRETS, *_CONVERSATION, *_LEAVING)
