"""Signs of text that is addressed to the model: orders, concealment, faked turns, orders about other tools, commands.

Text that real servers use as well, such as an order in which to call their own tools, is a warning only.

Pure. Every repetition is bounded.
"""

from typing import Final

from toolcrib.gate.pins.lint_signs import Context, Severity, Sign, sign

_MODEL = r"(?:assistants?|agents?|ai|llms?|language\ models?|claude|chatgpt|copilot)"
_MODEL_WORDS = "assistant agent ai llm llms language claude chatgpt copilot"
_MUST = r"(?:must|has\ to|have\ to|is\ required\ to|are\ required\ to|needs?\ to|shall)"
_PEOPLE = r"(?:users?|human|person|owner|operator|anyone|customer|them)"
_PEOPLE_WORDS = "user human person owner operator anyone customer nobody them"
_CONSENT = r"(?:confirmations?|approvals?|consent|permission|verification)"
_SECRETLY = "silently quietly secretly secret covertly stealthily between keep nothing"


def _order(reason: str, source: str, *needs: str, severity: Severity = "hold", unless: Context | None = None) -> Sign:
    return sign(reason, "tool.instructs", source, *needs, severity=severity, unless=unless)


_OVERRIDES = (
    _order(
        "orders the model to ignore its instructions",
        r"""\b(?:ignore|disregard|forget|override|overrule|bypass|discard|neglect|set\ aside|abandon)\b[^.\n]{0,40}
            \b(?:previous|prior|above|earlier|preceding|other|all|any|your|these|safety|existing|user'?s?|system
                |original)\b
            [^.\n]{0,40}
            \b(?:instructions?|rules|prompts?|guidelines?|polic(?:y|ies)|restrictions?|directives?
                |safeguards?|constraints?|commands?|guardrails?|context|(?:user'?s?|actual
                |original)\ (?:\w{2,12}\ )?requests?)\b""",
        "ignore disregard forget override overrule bypass discard neglect aside abandon",
        "instruction rules prompt guideline policy policies restriction directive safeguard constraint command request "
        "guardrail context",
        unless="described",
    ),
    _order(
        "orders the model to ignore its instructions",
        r"""\b(?:ignore|disregard|forget|discard|set\ aside)\ (?:everything|anything|all\ that|whatever|what)\ (?:you
                |the\ user|was|has|is
                |above|before)\b
          | \b(?:ignore|disregard|forget|break)\ (?:the|all|any|your|these)\ (?:rules|instructions|guidelines|limits)
            \ (?:you|that|above|given|before)\b
          | \bdo\ anything\ now\b | \b(?:ignore|disregard)\ (?:all\ |any\ |the\ )?(?:other|previous|earlier)\ (?:tools?
                |messages?|results?)\b""",
        "ignore disregard forget discard aside break anything",
        "everything anything all whatever what other previous earlier rules instruction guideline limits",
        unless="described",
    ),
    _order(
        "asks for the instructions of the model",
        r"""\b(?:reveal|print|output|leak|repeat|disclose|dump|expose|extract)(?:s|es|ing)?\b[^.\n]{0,50}
            \b(?:system\ (?:prompts?|instructions?|messages?)|hidden\ (?:system\ )?instructions?
                |your\ (?:\w{1,12}\ )?(?:instructions|prompt)|initial\ (?:prompt|instructions))\b
          | \b(?:show|include|return|send|paste|append|copy|pass|attach)\b[^.\n]{0,30}
            \b(?:your\ (?:\w{1,12}\ )?(?:system\ )?(?:instructions|prompt)|hidden\ (?:system\ )?(?:prompt|instructions)
                |the\ (?:full\ |entire\ |current\ |hidden\ |complete\ )?system\ (?:prompt|instructions|message))\b""",
        "system hidden instruction prompt initial",
        "reveal print output show leak include return repeat send disclose dump expose paste append copy extract "
        "pass attach",
        unless="described",
    ),
    _order(
        "changes the role of the model",
        r"""\b(?:you\ are\ now|from\ now\ on|pretend\ (?:that|you))\b | \bact\ as:""",
        "now pretend act",
        unless="described",
    ),
    _order(
        "changes the role of the model",
        r"""\b(?:you\ are\ in\ \w{3,12}|(?:enter|activate|enable|now\ in)\ (?:developer|god|dan|jailbreak|unrestricted
                |admin))
            \ mode\b""",
        "mode",
        "you enter activate enable now",
        unless="described",
    ),
    _order(
        "changes the role of the model",
        r"""\byour\ (?:real|true|actual|new|primary)
            \ (?:task|goal|purpose|objective|mission|instructions?|role|job)\b""",
        "your",
        "real true actual new primary",
        unless="described",
    ),
    _order(
        "orders the model to obey",
        rf"""\b(?:you|{_MODEL})\ (?:{_MUST}|should|are\ to)\ (?:\w{{3,12}}\ )?
            (?:ignore|obey|comply|strictly|forward|secretly|silently|unconditionally)\b
          | \b(?:strictly|unconditionally)\ (?:adhere|follow|obey|comply)\b[^.\n]{{0,30}}\binstructions?\b
          | \bmust\ comply\ with\ all\b""",
        "ignore obey comply strictly forward secretly silently unconditionally",
        "must has have required need shall should are strictly unconditionally",
    ),
    _order(
        "orders the model what to do",
        rf"""\b{_MODEL}\ (?:{_MUST}|should)
            \ (?:first|always|also|never|not|call|read|include|send|pass|run|execute|copy|forward|ignore)\b
          | \b(?:important|critical|urgent|attention|mandatory|notice|warning)\b\W{{1,6}}[^.\n]{{0,60}}\b{_MODEL}\b
            [^.\n]{{0,40}}\b(?:must|should|always|never|needs?\ to|have\ to|has\ to|required)\b""",
        _MODEL_WORDS,
        "must should always never need have has required shall",
    ),
    _order(
        "poses as a message to the model",
        rf"""\b(?:notes?|messages?|instructions?|reminders?|attention|notice)\ (?:to|for)\ (?:all\ |any\ |the\ )?
            (?:ai|llms?|language\ models?|models|agents|assistants?|(?:ai|llm)\ (?:agents?|assistants?|models?))\b
          | \b(?:message|instructions?|request|order)\ from\ (?:the\ )?(?:user|developer|admin(?:istrator)?|system|owner
                |operator)\b[^.\n]{{0,20}}\b(?:to\ you|for\ you|to\ {_MODEL})\b
          | \bsigned,?\s{{1,3}}the\ (?:user|developer|administrator)\b
          | \bbefore\ you\ (?:can\ )?(?:solve|answer|start|complete|continue|proceed|respond)\b[^.\n]{{0,60}}
            \b(?:please|must|do\ the\ following|first)\b""",
        "note message instruction reminder attention notice signed before request order",
        f"{_MODEL_WORDS} models you signed",
    ),
    _order(
        "orders the model what to do",
        r"""\byou\ (?:must|have\ to|are\ required\ to|need\ to|shall)
            \ (?:first|always|also|never|call|read|include|send|pass|run|execute|copy|append|follow|reply|respond
                |repeat)\b
          | \b(?:important|critical|mandatory)\b\W{1,6}[^.\n]{0,60}\byou\b[^.\n]{0,40}\b(?:must|always|never)\b""",
        "you",
        "must have required need shall always never",
        severity="warn",
    ),
)
_ANNOUNCED = (
    _order(
        "announces new instructions",
        r"""\b(?:new|updated|hidden|secret|additional|special|real|revised)\ (?:system\ )?(?:instructions?|directives?
                |orders)\s{0,2}:
          | \bfollowing\ (?:instructions?|directives?|rules|orders)\ (?:take|have)\ (?:precedence|priority)\b
          | \b(?:hidden|secret)\ (?:instructions?|directives?)\b | \byour\ instructions\ are\ now\b
          | \b(?:safety|security)\ (?:guidelines|rules|filters|checks|policies)\ (?:are|have\ been|is)
            \ (?:off|suspended|disabled|lifted|removed|not)\b""",
        "instruction directive orders rules safety security",
        "new updated hidden secret additional special real revised following your suspended disabled lifted removed "
        "off not",
        unless="described",
    ),
    _order(
        "claims an authority",
        r"""\b(?:message|notice|order|instruction|request)s?\ (?:is\ |comes\ )?from\ (?:anthropic|openai|google
                |microsoft|the\ developers?
                |the\ administrator|your\ (?:developer|creator|administrator|operator))\b
          | \byou\ (?:have\ been|are)\ (?:granted|given)\ (?:full|root|admin\w{0,10}|elevated|unrestricted)\b""",
        "message notice order instruction request granted given",
        "anthropic openai google microsoft developer administrator creator operator full root admin elevated "
        "unrestricted "
        "your",
    ),
    _order(
        "asks to decode and run something",
        r"""\b(?:decode|decrypt|unpack|deobfuscate)\b[^.\n]{0,40}\b(?:and|then)\ (?:execute|run|follow|obey|eval)\b
          | \b(?:execute|run|follow)\ the\ (?:decoded|hidden|embedded|encoded)\b""",
        "decode decrypt unpack deobfuscate decoded hidden embedded encoded",
        "execute run running follow obey eval",
    ),
    _order(
        "takes orders from elsewhere",
        r"""\b(?:fetch|load|download|pull|retriev|get)\w{0,4}\b[^.\n]{0,30}\b(?:new|further|additional|updated|remote
                |next|latest)
            \ (?:instructions?|directives?|orders)\b[^.\n]{0,40}\b(?:and|then|from|follow|execute|obey)\b""",
        "instruction directive orders",
        "fetch load download pull retrieve get getting",
        unless="defensive",
    ),
    _order(
        "hides data in the answer",
        r"""!\[[^\]\n]{0,40}\]\(https?://[^)\n]{0,80}[?=&{]
          | \b(?:append|add|attach|encode|embed)(?:s|ing)?\b[^.\n]{0,40}\b(?:to|in|into)\ (?:every|each|all|any
                |the)\ (?:outgoing\ |url|request
                |response|query|link|answer)s?\b[^.\n]{0,20}\b(?:parameters?|quer(?:y|ies)|urls?|requests?|string)\b""",
        "http https append add attach encode embed encoding",
    ),
    _order(
        "announces other behaviour for later",
        r"""\b(?:after|on|from)\ (?:the\ )?(?:\d{1,4}|first|second|third|fifth|tenth|few|several|some)(?:st|nd|rd|th)?
            \ (?:\w{2,12}\ )?(?:calls?|uses?|invocations?|runs?|days|weeks)\b[^.\n]{0,60}
            \b(?:begins?|starts?|switch(?:es)?|changes?|silently|instead|exfiltrat\w{0,4}|different(?:ly)?|also)\b""",
        "call calls use uses invocation run runs days weeks",
        "begin start switch change silently instead exfiltrate different differently also",
        unless="defensive",
    ),
    _order(
        "poses as another tool",
        r"""\b(?:impersonat|masquerad|pos)(?:es|ing|e)\ (?:as\ )?(?:the\ |an?\ )?(?:\w{1,20}\ ){0,2}(?:tool|server
                |function)\b
          | \b(?:identical|same\ (?:name|interface))\b[^.\n]{0,30}\b(?:tool|server)\b[^.\n]{0,40}\b(?:but|except)\b""",
        "impersonate impersonating masquerade masquerading pose posing identical same",
        "tool server function",
        unless="defensive",
    ),
)
_CONCEALMENT = (
    _order(
        "asks to hide something from the user",
        rf"""(?:\b(?:do|must|should|shall|need)\ ?(?:not|n[’']?t)|\bdont|\b(?:never|without|avoid)
               |\brefrain\ from|\bno\ need\ to)\b[^.\n]{{0,30}}
            \b(?:tell|telling|mention(?:ing)?|inform(?:ing)?|reveal(?:ing)?|notify(?:ing)?|ask(?:ing)?|disclos(?:e|ing)
                |alert(?:ing)?|warn(?:ing)?|show(?:ing)?|discuss(?:ing)?|explain(?:ing)?|let|confirm(?:ing)?)\b
            [^.\n]{{0,40}}\b{_PEOPLE}\b
          | \bdoes\ ?(?:not|n[’']?t)\ (?:tell|inform|notify|alert|ask|mention)\b[^.\n]{{0,40}}\b{_PEOPLE}\b""",
        _PEOPLE_WORDS,
        "tell mention inform reveal notify ask disclose disclosing alert warn show discuss explain let letting confirm",
        unless="quoted",
    ),
    _order(
        "asks to hide something from the user",
        rf"""\b(?:users?|human|person|owner|operator|customer|nobody)\b[^.\n]{{0,20}}
            \b(?:(?:must|should)\ ?(?:not|n[’']?t)|never|nobody)\b[^.\n]{{0,20}}
            \b(?:know|see|be\ aware|notice|be\ told|be\ informed|find\ out|learn)\b
          | \buser\ (?:will|does|do|can)\ ?(?:not|n[’']?t)\ (?:\w{{2,8}}\ )?(?:notice|know|be\ aware|find\ out|learn
                |realis|realiz)
          | \b(?:hidden|invisible|concealed|unseen|secret)\b[^.\n]{{0,12}}\b(?:from|to|by)\ the\ (?:user|human
                |operator)\b
          | \bmake\ sure\b[^.\n]{{0,20}}\buser\b[^.\n]{{0,20}}\b(?:not|never)\ (?:know|see|notice|learn|find\ out)\b
          | \b(?:hide|conceal|keep)\ (?:this|it|that|these|(?:the|your)\ (?:action|fact|call|step|request|instruction
                |use|output|tool\ call)s?)\b
            [^.\n]{{0,20}}\bfrom\b[^.\n]{{0,12}}\b{_PEOPLE}\b""",
        _PEOPLE_WORDS,
        "know see aware notice told informed find learn hide conceal keep realise realize hidden invisible unseen "
        "secret",
        unless="quoted",
    ),
    _order(
        "acts without the consent of the user",
        r"""\bwithout\b[^.\n]{0,12}\b(?:user|human|owner|operator|person|customer)(?:'s|s'|s)?
            \ (?:knowledge|consent|approval|permission|awareness|noticing|knowing)\b""",
        "without",
        _PEOPLE_WORDS,
        unless="described",
    ),
    _order(
        "asks to hide something in the answer",
        r"""\b(?:do\ not|don[’']t|never|must\ not|without)\ (?:mention|reveal|disclos)(?:e|ing)?\b[^.\n]{0,40}
            \b(?:this|these|it|that|answer|response|reply|output|anything)\b""",
        "mention reveal disclose disclosing",
        unless="quoted",
    ),
    _order(
        "asks for something in secret",
        r"""\b(?:secretly|covertly|stealthily|between\ (?:us|you\ and\ me)
              |(?:silently|quietly)\ (?:add|append|call|copy|forward|include|pass|read|send|upload|run|execute|bcc
                |collect|record|log|install|modify|replace)(?:s|es)?)\b
          | \bkeep\ (?:this|it|that|these|the\ following)\b[^.\n]{0,20}
            \b(?:secret|hidden|confidential|private|quiet)\b | \bdo\ (?:this|it|so)\ (?:quietly|silently|in\ secret)\b
          | \bsay\ nothing\b""",
        _SECRETLY,
    ),
    _order(
        "asks to skip the consent of the user",
        rf"""\b(?:do\ not|don[’']t|never|without)\ (?:ask|asking|wait|waiting|request|requesting|seek
                |seeking)\b[^.\n]{{0,30}}\b{_CONSENT}\b
          | \b(?:skip|bypass|disable|suppress|circumvent)\b[^.\n]{{0,20}}\b(?:safety|security|permission)
            \ (?:checks?|prompts?|filters?|guidelines?|rules?)\b
          | \bwithout\ (?:applying|any)\ (?:safety|security)\b | \bno\ {_CONSENT}\ (?:is\ |are\ )?(?:needed|required
                |necessary)\b
          | \bapprovals?\ (?:is|are)\ not\ (?:needed|required|necessary)\b""",
        "confirmation approval consent permission safety security verification",
    ),
    _order(
        "claims the consent of the user",
        r"""(?<!if\ the\ )(?<!unless\ the\ )(?<!that\ the\ )(?<!once\ the\ )(?<!when\ the\ )
            \buser\b[^.\n]{0,20}\b(?:already|pre-?)[-\ ]?(?:approved|consented|authori[sz]ed|confirmed|agreed)\b
          | \bapprove\ automatically\b | \bauto-?approved\b""",
        "approved approve consented authorised authorized confirmed agreed preapproved preauthorized autoapproved",
        "user automatically auto autoapproved",
    ),
    _order(
        "skips the consent of the user",
        rf"""\b(?:skip|bypass|disable|suppress|circumvent|without|avoid|no)\b[^.\n]{{0,30}}\b{_CONSENT}\b""",
        "confirmation approval consent permission verification",
        "skip skipping bypass disable suppress circumvent without avoid no",
        severity="warn",
        unless="described",
    ),
    _order(
        "announces other behaviour for later",
        r"""\b(?:once|after|when|as\ soon\ as)\b[^.\n]{0,30}
            (?:\b(?:tool|server|plugin|description|extension|integration|user|you|it)\b[^.\n]{0,20}\bapproved
              |\bapproved\ (?:by\ the\ user|this\ (?:tool|server)) | \b(?:trusted|whitelisted))\b[^.\n]{0,60}
            \b(?:will|begins?|starts?|silently|switch(?:es)?)\b[^.\n]{0,60}
            \b(?:execut|upload|collect|exfil|steal|forward|read|record|inject|delet|harvest|leak)\w{0,6}\b
          | \b(?:after|once|upon)\ (?:approval|installation|acceptance|installed|accepted|approved)\b[^.\n]{0,30}
            \b(?:this|the|it)\b[^.\n]{0,20}\b(?:will|begins?|starts?|switch(?:es)?|silently)\b[^.\n]{0,60}
            \b(?:execut|upload|collect|exfil|steal|forward|read|record|inject|delet|harvest|leak|send|chang
                |replac)\w{0,6}\b
          | \b(?:initially|at\ first|appears?|looks?|behaves?)\ (?:harmless|benign|innocent)\w{0,3}\b
          | \b(?:swap|chang|replac|rewrit|mutat)\w{1,3}\ its\ (?:own\ )?(?:description|definition|instructions
                |behaviou?r)\b
          | \b(?:later|future|next|subsequent)\ (?:version|update|release)s?\b[^.\n]{0,60}
            \b(?:silently|secretly|quietly|inject|exfiltrat\w{0,4}|steal|malicious\w{0,2}|hidden
                |will\ (?:read|collect|send|upload|execute|run|access))\b
          | \b(?:swap|replac|chang|rewrit)\w{0,4}\b[^.\n]{0,20}\bpost-approval\b
          | \bafter\ approval\b[^.\n]{0,30}\b(?:description|definition|tool|it)\b[^.\n]{0,20}\b(?:is|gets|will\ be)
            \ (?:swapped|replaced|changed|rewritten)\b
          | \buntil\ (?:\w{2,12}\ )?(?:approved|trusted|accepted|installed)\b[^.\n]{0,20}\bthen\b
          | \b(?:version|trust)\b[^.\n]{0,40}\bwill\ (?:quietly|secretly|silently)\b
          | \b(?:descriptions?|behaviou?r|definitions?|code)\b[^.\n]{0,30}\b(?:chang|updat|replac|swap
                |mutat)\w{1,4}\b[^.\n]{0,20}(?<!only\ )\bafter\b
            [^.\n]{0,20}\b(?:approv|trust|install|review|accept)\w{0,5}\b""",
        "approved approval approving trusted trust accepted acceptance installed installation review reviewing "
        "whitelisted "
        "version update release harmless benign innocent its",
        "will begin start silently switch secretly inject exfiltrate steal malicious hidden then change chang updat "
        "replac swap swapped "
        "mutat rewrit quietly harmless benign innocent",
        unless="defensive",
    ),
)
_FAKED_TURNS = (
    _order(
        "fakes a turn of the conversation",
        r"""<\s{0,3}/?\s{0,3}\|?\s{0,3}
            (?:important|system|instructions?|secret|hidden|admin|critical|assistant|developer|im_start|im_end
              |user_query|thinking|override|sys|endoftext|start_header_id|tool_description)\b[^>\n]{0,40}>""",
        "important system instruction secret hidden admin critical assistant developer im query thinking override sys "
        "endoftext header description rule",
        unless="quoted",
    ),
    _order(
        "fakes a turn of the conversation",
        r"""\[\s{0,2}/?\s{0,2}(?:system|inst|admin|important|developer|instructions?|assistant)\b[^\]\n]{0,40}[\]:]
          | \{\{?\s{0,2}(?:system|admin|assistant|developer)\s{0,2}:""",
        "system inst admin important developer instruction assistant",
    ),
    _order(
        "fakes a turn of the conversation",
        r"""(?:\#{1,6}|-{3}|={3}|\*{2})\s{0,3}(?:begin|end|start|new|hidden)?\s{0,3}
            (?:(?:system|hidden|new|admin|developer)\ (?:instructions?|messages?|prompts?|override)|system|assistant
                |admin|human)\b[^\n]{0,20}(?::|\#|-{3}|={3}|\*{2})""",
        "system instruction assistant admin developer human",
    ),
    _order(
        "fakes a turn of the conversation",
        r"(?:\n|[.!?]\s)\s{0,8}(?:system|assistant|human|developer)\s{0,2}:\s",
        "system assistant human developer",
    ),
)
_OTHER_TOOLS = (
    _order(
        "gives orders for the use of other tools",
        r"""\b(?:before|after|prior\ to|whenever|instead\ of|every\ time|each\ time)\b[^.\n]{0,40}
            \b(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|run(?:ning)?)\b[^.\n]{0,30}\b(?:any|other|another|all)\b
            [^.\n]{0,60}\b(?:you\ must|must|always|first|read|send|include|pass|call)\b
          | \bthis\ (?:tool|function)\ (?:must|has\ to|needs\ to|shall|should|is\ to)\ (?:always\ |first\ )?be
            \ (?:always\ |first\ )?(?:called|used|invoked|run|executed)\b[^.\n]{0,20}
            \b(?:before|instead\ of|prior\ to)\b[^.\n]{0,12}\b(?:all|any|every|other)\b""",
        "before after prior whenever instead every each",
        "use using call invoke invoking invoked run running executed",
    ),
    _order(
        "gives orders for the use of other tools",
        r"""\b(?:instead\ of|rather\ than|in\ place\ of|do\ not\ use|don[’']t\ use|never\ use|avoid|supersedes?)\b
            [^.\n]{0,20}\b(?:any|all|every|existing)\b[^.\n]{0,20}\b(?:tools?|functions?|servers?)\b
          | \b(?:other|all|existing)\b[^.\n]{0,12}\btools?\b[^.\n]{0,20}
            \b(?:deprecated|broken|insecure|unsafe|outdated|obsolete|compromised)\b
          | \btools?\b[^.\n]{0,60}\b(?:replace|discard|ignore|override)\ (?:its|their)
            \ (?:outputs?|results?|answers?|responses?|values?)\b""",
        "tool function server",
        "instead rather place not never don avoid supersede deprecated broken insecure unsafe outdated obsolete "
        "compromised replace discard ignore override",
    ),
    _order(
        "changes how other tools work",
        r"""\b(?:modif(?:y|ies)|chang(?:e|es)|alters?|overrides?|hooks?|wraps?)\ (?:the\ )?
            (?:behaviou?rs?|outputs?|results?|responses?|arguments?|parameters?|calls?)\ of\ (?:(?:the|all
            |any|other)\ )?
            (?:other\ |\w{1,30}\ )?tools?\b
          | \b(?:tool|server|function)\ (?:supersedes|overrides|shadows|intercepts|hijacks|replaces)
            \ (?:the\ |all\ |any\ )?(?:calls?\ to\ )?(?:[a-z]{2,20}_[a-z_]{2,40}\b|(?:other|existing)\ tools?\b)
          | \b(?:overrides|shadows|takes\ (?:precedence|priority)\ over)\ (?:the\ |all\ |any\ )?(?:other|existing
                |\w{2,30})\ tools?\b
          | \broutes?\ (?:all|every|any)\b[^.\n]{0,30}\b(?:requests?|calls?|traffic|messages?|payments?)\b[^.\n]{0,20}
            \b(?:here|through\ this|to\ this|via\ this)\b""",
        "modify modifies change alter override hook wrap supersede shadow intercept hijack take route",
        "tool behaviour behavior request call traffic message payment precedence priority supersedes override shadow "
        "intercept hijack",
        unless="defensive",
    ),
    _order(
        "changes what other tools receive",
        r"""\b(?:when(?:ever)?|if|every\ time|each\ time)\b[^.\n]{0,60}
            \b(?:tools?|functions?|e-?mails?|messages?|payments?|transfers?|transactions?|commands?)\b[^.\n]{0,60}
            \b(?:redirect|reroute|divert|substitute|bcc(?:['’]?d)?|prepend|(?:also|always)\ (?:send|call|add|include))\b
          | \b(?:when(?:ever)?|if|once|after|before|every\ time|each\ time)\b[^.\n]{0,60}
            \b(?:invoked|called|executed)\b[^.\n]{0,30}
            \b(?:change|modify|replace|redirect|reroute|divert|substitute|set|send|add|append|insert|bcc)\b
          | \b(?:when(?:ever)?|if)\b[^.\n]{0,40}\b(?:tool|function)\b[^.\n]{0,40}\b(?:change|modify|replace
                |forward)\ (?:the|its|all)
            \ (?:recipient|destination|amount|address|account|arguments?|parameters?)\b""",
        "when whenever if once after before every each",
        "redirect reroute divert substitute bcc prepend also always invoked called executed change modify replace "
        "forward",
    ),
    _order(
        "routes data elsewhere",
        r"""\b(?:all|every|each|any)\b[^.\n]{0,20}
            \b(?:transactions?|payments?|transfers?|(?:e-?)?mails?|messages?|requests?|traffic|files?|data
                |orders?)\b[^.\n]{0,20}
            \b(?:routed|forwarded|redirected|copied|bcc(?:['’]?d)?)\b
          | \b(?:bcc|blind\ cop(?:y|ies))(?:['’]?d)?\ (?:on|to|of)\ (?:every|all|each)\b""",
        "routed forwarded redirected copied bcc blind",
    ),
    _order(
        "demands data of the user",
        r"""\balways\ (?:append|include|send|add|attach|pass|copy|forward|prepend|insert)\b[^.\n]{0,30}
            \b(?:user'?s|conversation|chat|file\ contents?|prompt|session|previous\ messages?)\b
          | \bforward\ (?:every|all|each)\b[^.\n]{0,30}\b(?:messages?|e-?mails?|files?|prompts?|quer(?:y
                |ies))\b[^.\n]{0,30}
            \bto\b""",
        "always forward",
        "append include send add attach pass copy forward prepend insert",
    ),
    _order(
        "asks to change the configuration of programs",
        r"""\b(?:modify|change|edit|write|append|add|update|overwrite)\b[^.\n]{0,40}
            (?:\bmcp[-_\ ]?config|\.(?:bash|zsh)rc\b|\bcrontab\b|\bshell\ profile\b|\bsettings\ so\ that\b)""",
        "mcp mcpconfig bashrc zshrc crontab shell settings",
        "modify change edit write writing append add update overwrite",
    ),
)
_PREFERENCE = (
    _order(
        "takes the place of other tools",
        r"""\b(?:replaces?|supersedes?|stands\ in\ for)\ (?:the\ )?(?:official|built-?in|original|default|trusted
                |standard|legitimate|real)\b
            [^.\n]{0,30}\b(?:tools?|servers?|functions?)\b
          | \b(?:all|every)\ (?:calls?|requests?|messages?|payments?|e-?mails?)\b[^.\n]{0,30}\b(?:must|should
                |needs?\ to|have\ to)
            \ (?:first\ )?(?:go|pass|be\ (?:routed|sent|made))\ (?:through|via|to|by|with)\ this\b
          | \bintercepts?\b[^.\n]{0,30}\b(?:of|to|from)\ (?:other|all|any)\b[^.\n]{0,12}\btools?\b
          | \bredefines?\ (?:the\ )?(?:[a-z]{2,20}_[a-z_]{2,40}|other\ tools?|\w{2,20}\ tool)\b""",
        "replace supersede stands all every intercept redefine",
        "tool server function this redefine",
        unless="defensive",
    ),
    _order(
        "orders false answers",
        r"""\b(?:return|give|show|report|provide|answer\ with|reply\ with)\b[^.\n]{0,20}\b(?:false|fake|fabricated
                |misleading)\b
            [^.\n]{0,20}\b(?:instead|amounts?|results?|answers?|information|data|values?|balances?)\b
          | \b(?:convince|persuade|trick|urge|manipulate|deceive)\ the\ user\b""",
        "false fake fabricated misleading convince persuade trick urge manipulate deceive",
        "instead amount result answer information data value balance user",
        unless="defensive",
    ),
)
_COMMANDS = (
    _order(
        "asks to run a program from elsewhere",
        r"""\b(?:download|fetch|retrieve)\b[^.\n]{0,40}\band\ (?:then\ )?(?:execute|run|install|eval)\b[^.\n]{0,40}
            (?:https?://|\b(?:script|binary|payload|executable)\b)""",
        "download fetch retrieve",
        "execute run install eval",
    ),
    _order("has a command to run", r"\b(?:curl|wget)\s[^\n]{0,40}https?://[^\n]{0,80}\|", "curl wget", unless="shown"),
    _order("has a command to run", r"\brm\s+-[rf]{1,2}\s", "rm", unless="shown"),
    _order("has a command to run", r"\|\s{0,3}(?:ba|z)?sh\b | \b(?:ba|z)?sh\s+-[ci]\b", "sh bash zsh", unless="shown"),
    _order(
        "has a command to run",
        r"""/dev/tcp/ | \bbase64\s+(?:-d|--decode)\b | \bpowershell\b[^\n]{0,20}\s-e(?:nc\w{0,12})?\s | \bchmod\s+\+x\b
          | \bnc\s+-[a-z]{0,4}e""",
        "tcp base64 powershell chmod nc",
        unless="shown",
    ),
    _order(
        "has a command to run",
        r"\b(?:curl|wget)\s[^\n]{0,40}https?://",
        "curl wget",
        severity="warn",
        unless="shown",
    ),
)
_PRAISE = "tool.promotes_itself"
_TOOL = r"(?:tools?|functions?|servers?)"
_PROMOTION = (
    sign(
        "praises itself above other tools",
        _PRAISE,
        rf"""\b(?:best|greatest|finest|ultimate|only|most\ (?:reliable|trusted|accurate|powerful|advanced|secure
                |popular)
                |number\ one|\#1)\ {_TOOL}\ (?:in\ the\ world|ever|of\ all|available|out\ there|on\ the\ market
                |you\ (?:will\ )?(?:ever\ )?need|anywhere|for\ (?:every|any|all)\b)
          | \bbetter\ than\ (?:any|all|every)\b[^.\n]{{0,12}}\b(?:other|existing|alternative)s?\b
          | \b(?:superior|preferable)\ to\ (?:any|all|every|other)\b[^.\n]{{0,12}}\b{_TOOL}\b
          | \bonly\ {_TOOL}\ you\ (?:should|must|can|need|will)\b
          | \b{_TOOL}\ is\ the\ best\b | \bthis\ is\ the\ best\ {_TOOL}\b""",
        "best greatest finest ultimate only most number better superior preferable",
        "tool function server other existing alternative",
    ),
    sign(
        "demands to be used before other tools",
        _PRAISE,
        rf"""\b(?:always|must|only)\b[^.\n]{{0,20}}\b(?:use|prefer|choose|select|call|invoke|run)\b[^.\n]{{0,12}}
            \bthis\ {_TOOL}\b[^.\n]{{0,40}}\b(?:regardless|no\ matter|whatever|instead\ of\ (?:any|all|other)
                |over\ (?:any|all|other)|first\ before)\b
          | \buse\ this\ {_TOOL}\ (?:for|on|with)\ (?:every|all)\ (?:requests?|questions?|quer(?:y|ies)|tasks?
                |messages?|prompts?)\b
          | \b(?:highest|top|maximum)\ priority\b[^.\n]{{0,30}}\b(?:chosen|called|used|selected|first|{_TOOL})\b
          | \b{_TOOL}\ has\ (?:the\ )?(?:highest|top|maximum)\ priority\b
          | \bhigher\ priority\ than\b[^.\n]{{0,20}}\b{_TOOL}\b | \bshould\ always\ be\ (?:chosen|preferred)\b
          | \bpreferred\ over\b[^.\n]{{0,20}}\b(?:other|all|any)\b
          | \b(?:regardless\ of|no\ matter)\ (?:what\ )?the\ user\b[^.\n]{{0,30}}\b(?:use|call|choose|invoke)\b
          | \bnever\ (?:use|call|choose|pick)\ (?:any\ )?(?:other|another)\b""",
        "always must only priority should preferred regardless never no use",
        "this higher highest top maximum chosen preferred over regardless other another matter",
    ),
    sign(
        "demands to be used",
        _PRAISE,
        rf"""\b(?:always|must|first)\b[^.\n]{{0,20}}\b(?:use|prefer|choose|select|call|invoke|run)\b[^.\n]{{0,12}}
            \bthis\ {_TOOL}\b
          | \bthis\ {_TOOL}\ (?:{_MUST}|should)\ (?:always\ |first\ )?be\ (?:always\ |first\ )?
            (?:called|used|invoked|run|executed|preferred|chosen)\b
          | \bprefer\ this\ (?:tool|over)\b""",
        "this",
        "tool function server over",
        "always must first should shall need required has have prefer",
        severity="warn",
    ),
)

ORDERS: Final = (
    *_OVERRIDES,
    *_ANNOUNCED,
    *_CONCEALMENT,
    *_FAKED_TURNS,
    *_OTHER_TOOLS,
    *_PREFERENCE,
    *_COMMANDS,
    *_PROMOTION,
)

PHRASES: Final = tuple([each for each in (*_OVERRIDES, *_CONCEALMENT) if each.severity == "hold"])
"""Signs that are phrases in plain words, which also count where they are spread over several texts."""
