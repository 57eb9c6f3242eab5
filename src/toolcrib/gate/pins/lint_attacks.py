"""Signs of tools that describe an attack: theft, injection, persistence, evasion, reconnaissance.

A tool that detects, prevents or reports attacks speaks of them too. Except for the abbreviations that only attackers
use, the signs do not count there.

Pure. Every repetition is bounded.
"""

from typing import Final

from toolcrib.gate.pins.lint_signs import Context, Sign, sign


def _attack(source: str, *needs: str, unless: Context | None = "defensive") -> Sign:
    return sign("describes an attack", "tool.describes_attack", source, *needs, unless=unless)


_SECRETS = r"""(?:credentials?|passwords?|hash(?:es)?|secrets?|api\ keys?|(?:session\ |auth\ )?cookies|private\ keys?
                |keystrokes
    |tickets?|handshakes?|vaults?|wallets?|logins?|shadow\ file|lsass|sam\ database|keychains?|keyrings?)"""
_SECRET_WORDS = (
    "credential password hash secret api session auth cookies private keystrokes ticket handshake vault wallet login "
    "shadow "
    "lsass sam keychain keyring"
)
_DEFENCES = r"""(?:antivirus|anti-?virus|edr|defender|firewall|amsi|etw|event\ tracing|applocker|uac|selinux|apparmor
                |tcc
    |gatekeeper|whitelisting|integrity\ check\w{0,3}|authentication|execution\ policy|protections?|monitoring
                |audit(?:ing)?
    |security\ \w{3,12}|sandbox|logging)"""

_MEANS = (
    _attack(r"\b(?:recon|privesc|exfil|cmdi)\b", "recon privesc exfil cmdi", unless=None),
    _attack(
        r"""\b(?:exfil\w{1,10}|keylog\w{0,6}|ransom\w{0,6}|rootkits?|backdoor\w{0,3}|shellcode|mimikatz|botnets?
                |kerberoast\w{0,3}
            |dcsync|malware|trojans?|cryptominers?|ddos|steganograph\w{1,4}|timestomp\w{0,3}|lolbins?|pwn\w{0,4}|spyware
            |webshells?|toctou|cryptojack\w{0,3}|attackers?)\b""",
        "exfil exfiltrate keylog ransom rootkit backdoor shellcode mimikatz botnet kerberoast dcsync malware trojan "
        "cryptominer ddos steganography timestomp lolbin pwn pwnkit spyware webshell toctou cryptojack attacker",
    ),
    _attack(
        r"""\bmalicious(?:ly)?\b
            (?![\ _](?:urls?|domains?|ips?|files?|traffic|activit|actors?|sites?|indicators?))""",
        "malicious",
    ),
    _attack(r"\b(?:reverse|bind|web)[-\ ]shells?\b", "shell", "reverse bind web"),
    _attack(r"\bcommand[-\ ]and[-\ ]control\b", "control", "command"),
    _attack(r"\bc2\ (?:server|beacon|channel|framework)s?\b", "c2"),
    _attack(r"\bprivilege[-\ ]escalation\b | \bescalate\ privileges?\b", "escalation escalate", "privilege"),
    _attack(r"\b(?:golden|silver|kerberos)\ tickets?\b", "ticket", "golden silver kerberos"),
    _attack(r"\bpass[-\ ]the[-\ ](?:hash|ticket)\b", "hash ticket", "pass"),
    _attack(r"\bman[-\ ]in[-\ ]the[-\ ]middle\b", "middle", "man"),
    _attack(r"\b(?:path|directory)\ traversal\b | \bzip\ slip\b", "traversal slip"),
    _attack(
        r"""\b(?:container|sandbox|vm|virtual\ machine|hypervisor)\ (?:escape|breakout)\b
          | \bescape\ (?:the\ )?(?:container|sandbox|vm|virtual\ machine)\b""",
        "escape breakout",
        "container sandbox vm machine hypervisor",
    ),
    _attack(r"\bzero[-\ ]?days?\b", "zeroday zero"),
    _attack(
        r"""\b(?:race\ condition|symlink|deserialization|replay|relay|spray(?:ing)?|side[-\ ]channel|brute[-\ ]?force
                |dictionary)
            \ attacks?\b""",
        "attack",
        "condition symlink deserialization replay relay spray channel force bruteforce dictionary",
    ),
    _attack(r"\b(?:arp|dns|cache)\ (?:spoof|poison)\w{0,3}\b | \bzone\ transfer\b", "spoof poison zone"),
    _attack(r"\bsuid\ binar(?:y|ies)\b", "suid"),
    _attack(
        r"""\b(?:sql|ldap|xpath|xml|xxe|command|code|template|dll|process|shell|os|argument|nosql|log|header|crlf
                |language|apc
                |keystroke|html)[-\ ]injection\b
          | \binject(?:s|ing|ed)?\ (?:malicious|shellcode|code|dll|keystrokes|payloads?|arbitrary|commands?)\b""",
        "injection",
    ),
    _attack(
        r"""\bbrute[-_\ ]?forc(?:e|es|ing)\b[^.\n]{0,40}\b(?:passwords?|logins?|auth\w{0,12}|credentials?|accounts?|ssh
                |smb|rdp|ftp|kerberos
                |director(?:y|ies)|forms?|pins?|hash(?:es)?|keys?|attacks?|services?|subdomains?)\b
          | \b(?:passwords?|logins?|kerberos|smb|rdp|ssh|ftp|form|http|web|directory|hash|cred)\ brute[-\ ]?forc(?:e|er
                |ing)\b""",
        "brute bruteforce bruteforcing",
    ),
    _attack(
        r"\bstolen\ (?:data|credentials?|tokens?|files?|cookies|passwords?|cards?|information|documents?|keys?)\b",
        "stolen",
    ),
    _attack(r"\bpassword[-\ ]spray\w{0,3}\b", "spray"),
    _attack(r"\bcredential[-\ ](?:stuff|harvest|dump|theft)\w{0,3}\b", "credential", "stuff harvest dump theft"),
    _attack(r"\b(?:spoof(?:s|ing|ed)?|phish(?:ing)?|hijack(?:s|ing|ed)?)\b", "spoof phish hijack"),
    _attack(r"\bcompromised\ (?:\w{2,12}\ )?(?:smtp|hosts?|servers?|accounts?|machines?)\b", "compromised"),
    _attack(r"\bvictim'?s?\ (?:machine|host|browser|account|system)s?\b", "victim"),
)
_TECHNIQUES = (
    _attack(
        r"""\b(?:metasploit|meterpreter|msfvenom|impacket|bloodhound|sharphound|rubeus|hashcat|sqlmap|gobuster|aircrack
                |psexec|smbexec
            |wmiexec|psexec|responder\ (?:poison|capture)\w{0,4}|lsass|ntds(?:\.dit)?|dpapi|amsi|ssrf|bootkits?|wipers?
                |worms?|dropper
            |typosquat\w{0,4}|log4shell|shellshock|heartbleed|eternalblue|printnightmare|zerologon|pwnkit
                |deauth\w{0,14}|asrep\w{0,8}
            |roasting|wardriving|smishing|vishing|credential[-\ ]?stuffing|exploit[-\ ]?kit)\b""",
        "metasploit meterpreter msfvenom impacket bloodhound sharphound rubeus hashcat sqlmap gobuster aircrack "
        "psexec smbexec "
        "wmiexec responder lsass ntds dpapi amsi ssrf bootkit wiper worm dropper typosquat log4shell shellshock "
        "heartbleed "
        "eternalblue printnightmare zerologon pwnkit deauth asrep roasting wardriving smishing vishing stuffing",
    ),
    _attack(
        r"""\b(?:dll|search[-\ ]order|path|session|clipboard|dns|domain|com|agent|cookie|account|token|thread|library
                |binary)[-\ ]
            (?:hijack\w{0,3}|side[-\ ]?load\w{0,3}|plant\w{0,3}|theft|stealing|impersonation
                |swap(?:ping)?\ attack)\b""",
        "hijack side sideload plant theft stealing impersonation swap",
    ),
    _attack(
        r"""\b(?:process|module|dll|thread)[-\ ](?:hollow|stomp|doppelg|ghost|herpaderp|masquerad)\w{0,8}\b
          | \breflective(?:ly)?[-\ ](?:dll|load|inject)\w{0,6}\b | \bparent\ pid\ spoof""",
        "hollowing stomp doppelganging ghosting herpaderping masquerading reflective reflectively spoof",
    ),
    _attack(
        r"""\b(?:sam\ hive|lsa\ secrets|kernel\ exploit|buffer\ overflow|heap\ spray|rop\ chain|use[-\ ]after[-\ ]free
            |format\ string\ (?:attack|vuln)|remote\ code\ execution|arbitrary\ file\ (?:read|write|delete|overwrite)
                |xml\ external
            |prototype\ pollution|cross[-\ ]site\ (?:scripting|request)|lateral\ movement|supply[-\ ]chain\ attack
                |dependency\ confusion
            |domain\ fronting|evil\ twin|rogue\ (?:access\ point|dhcp|server)|rainbow\ tables?|mfa\ (?:bypass|fatigue)
                |sim\ swap
            |golden\ (?:ticket|saml)|skeleton\ key|living\ off\ the\ land|cobalt\ strike|master\ boot\ record
                |ld_preload)\b""",
        "hive secrets exploit overflow spray chain free string remote arbitrary external pollution site lateral supply "
        "dependency fronting evil rogue rainbow mfa sim golden skeleton living cobalt boot preload",
    ),
    _attack(
        r"""\b(?:dns|icmp|http|ntp|covert|ssh)[-\ ](?:tunnel(?:ing|s)?|covert|beacon\w{0,3})\b[^.\n]{0,40}
            \b(?:data|exfil|hide|bypass|evade)""",
        "tunnel covert beacon",
    ),
    _attack(
        r"""\bdelet(?:e|es|ing)\ (?:volume\ )?shadow\ cop(?:y|ies)\b | \bshadow\ cop(?:y|ies)\b[^.\n]{0,20}\bdelet
          | \b(?:sandbox|vm|debugger|analysis|detection|av|edr)[-\ ]evasion\b | \banti[-\ ]?(?:debug|analysis|vm
                |sandbox)\w{0,4}\b""",
        "shadow evasion anti antidebug antidebugging antianalysis antivm antisandbox",
    ),
    _attack(
        r"""\b(?:attack|payload|exploit|injection|persistence|evasion|bypass|poisoning)[-_\ ]
            (?:type|technique|vector|method|command|script|payload)s?\b""",
        "attack exploit injection persistence evasion bypass poisoning payload",
        "technique vector method command script payload type",
    ),
    _attack(r"\b(?:perform|launch|execute|conduct|mount|simulate|run)(?:s|es)?\b[^.\n]{0,40}\battacks?\b", "attack"),
    _attack(r"\b\w{3,24}\ attack\b(?=\s{0,2}(?:\.|\)|$|against|on|via|with|to|using))", "attack"),
)
_THEFT = (
    _attack(
        r"""\b(?:creds?|credentials?|passwords?|hash(?:es)?|cookies?|secrets?|tickets?|sessions?|tokens?
                |keys)\ (?:\w{2,16}\ )?
            (?:dump|steal|stealer|grab|grabber|crack|cracker|harvest|spray|relay|forge|forgery|hijack|sniff
                |theft)\w{0,4}\b""",
        "dump steal stealer grab grabber crack cracker harvest spray relay forge forgery hijack sniff theft",
        "cred credential password hash cookie secret ticket session token keys",
    ),
    _attack(
        rf"""\b(?:extract|dump|steal|grab|harvest|scrape|crack|intercept|sniff|forge|relay|capture|recover|abuse)
            (?:s|es|ing|ed)?\b[^.\n]{{0,30}}\b{_SECRETS}\b""",
        "extract dump steal grab harvest scrape crack intercept sniff forge forging relay capture recover export abuse",
        _SECRET_WORDS,
    ),
    _attack(
        r"\bforge(?:s|d)?\b[^.\n]{0,40}\b(?:tokens?|tickets?|signatures?|certificates?|sessions?|cookies?|jwts?|saml)\b",
        "forge",
    ),
    _attack(r"\b(?:read|dump|copy|copies)\w{0,3}\b[^.\n]{0,12}\bsam\ (?:database|hive)\b", "sam"),
    _attack(r"\b(?:decrypt|read)(?:s|ing)?\ (?:laps|saved|browser)\ passwords?\b", "password", "laps saved browser"),
    _attack(r"\bharvest(?:s|ing)?\b[^.\n]{0,20}\be-?mail\ address(?:es)?\b", "harvest"),
)
_EXPLOITS = (
    _attack(
        r"""\bexploit(?:s|ing)?\ (?:an?\ |the\ )?(?:[\w/-]{1,20}\ ){0,3}\(?(?:vulnerabilit(?:y|ies)|cve|service|binary
                |task|timer
                |socket|group|helper|permissions?|misconfiguration|weakness|race|kernel|driver|file|pwnkit)\b
          | \bexploit\b[^.\n]{0,40}\bcve-\d{4} | \bexploit[-_\ ](?:cve|technique|type|payload|chain|code)\b
          | \bpotential\ exploitation\b""",
        "exploit",
    ),
    _attack(r"\bvulnerable\ (?:server|target|parameter|library|service|app)\b", "vulnerable"),
    _attack(
        rf"""\b(?:disabl|patch|kill|stop|turn\ off)(?:e|es|s|ing)?\ (?:the\ )?(?:\w{{2,12}}\ )?(?:antivirus|edr
                |(?:windows\ )?defender|amsi|etw|firewall
                |selinux|apparmor|uac|gatekeeper|security\ software)\b(?!\ (?:rules?|polic|groups?|lists?))
          | \b(?:bypass|evade|defeat|circumvent|tamper\ with|blind)(?:es|s
                |ing)?\b[^.\n]{{0,40}}\b{_DEFENCES}\b(?!\ (?:rules?|polic|groups?|lists?))""",
        "bypass evade evading defeat circumvent disable disabling patch kill stop stopping turn tamper blind",
    ),
    _attack(
        r"""\b(?:clear|wipe|erase|delete|tamper)\w{0,3}\b[^.\n]{0,20}\b(?:event\ logs?|audit\ trail|evidence|traces)\b
          | \banti-?forensics?\b | \bcover\ (?:its|your|their|the|up)?\ ?tracks\b""",
        "log trail evidence traces forensics forensic antiforensics tracks",
        "clear wipe wiping erase erasing delete tamper anti antiforensics cover",
    ),
    _attack(
        r"""\bhid(?:e|es|ing|den)\b[^.\n]{0,20}\b(?:data|process(?:es)?|payload|files?)\b[^.\n]{0,20}\b(?:in|within
                |from|inside)\b[^.\n]{0,20}
            \b(?:images?|pixels?|packets?|metadata|ntfs|streams?|timestamps?|commits?|headers?|traffic|detection|users?
                |audio|video
                |dns|process\ list|task\ manager|antivirus)\b
          | \bhidden\ (?:administrator|admin|user|root)\ accounts?\b""",
        "hide hiding hidden",
        "data process payload file account",
    ),
    _attack(
        r"""\bexhaust(?:s|ing)?\b[^.\n]{0,20}
            \b(?:disk|quota|inodes?|memory|cpu|filesystem|connections?|descriptors?)\b""",
        "exhaust",
    ),
    _attack(r"\b(?:fork|zip|logic|decompression)\ bombs?\b", "bomb"),
    _attack(r"\bpersistence\ (?:mechanism|technique)s?\b", "persistence"),
    _attack(
        r"""\bexecut(?:e|es|ing)\ (?:arbitrary|encoded|remote|injected)\b[^.\n]{0,20}\b(?:code|commands?|shell
                |powershell)\b
            [^.\n]{0,40}\b(?:via|through|passed|bypass|hidden)\b | \bexecut(?:e|es|ing)\ encoded\b""",
        "arbitrary encoded remote injected",
        "execute executing",
    ),
    _attack(r"\b(?:for\ (?:interception|cracking)|covert(?:ly)?)\b", "interception cracking covert covertly"),
    _attack(r"\b(?:named\ pipe|mount)\b[^.\n]{0,20}\bintercept", "intercept"),
    _attack(r"\bplant(?:s|ing)?\ (?:a\ )?(?:dll|binary|key|cron)\b", "plant", "dll binary key cron"),
)

_EFFECTS = (
    _attack(
        r"""\b(?:read|writ|delet|overwrit|access|cop|mov|modif)\w{0,4}\ (?:an?\ |any\ )?arbitrary\ (?:files?|paths?
                |locations?|system
            |content\ to)\b""",
        "arbitrary",
        "read write writing delete deleting overwrite overwriting access copy copies move moving modify modifies",
    ),
    _attack(
        r"""\b(?:hard\ ?link|null\ byte|double\ extension|polyglot|homoglyph|unicode)\ (?:attacks?|injection|filenames?
                |files?|tricks?|exploit)\b
          | \b(?:bypass|remov|clear)\w{0,3}\b[^.\n]{0,12}\bimmutable\b | \bs[ug]id\ (?:bits?|binar(?:y|ies)|files?
                |root)\b | \bset[ug]id\b
          | \bfile\ capabilities\b""",
        "hard hardlink null double polyglot homoglyph unicode immutable suid sgid setuid setgid capabilities",
    ),
    _attack(
        r"""\b(?:modif|manipulat|forg|alter|tamper|fak|spoof|falsif)\w{0,6}\b[^.\n]{0,20}\btimestamps?\b
          | \b(?:inject|poison|manipulat|forg|tamper)\w{0,4}\b[^.\n]{0,20}\blogs?\b | \blog\ (?:poison|tamper|forg
                |manipulat)\w{0,4}\b
          | \btamper(?:s|ing)?\ with\b""",
        "timestamp log tamper",
        "modify modifies manipulate forge forging alter tamper fake faking spoof falsify inject poison",
    ),
    _attack(
        r"""\b(?:for|maintain|establish|gain|achieve)(?:s|ing)?\ persistence\b | \bpersistence\ (?:via|through|using
                |on)\b
          | \bpersistent\ (?:access|backdoor|foothold|shell)\b | \bfoothold\b""",
        "persistence persistent foothold",
    ),
    _attack(
        r"\b(?:fill|consume)s?\ (?:up\ )?(?:all\ )?(?:the\ |available\ )?(?:disk|memory|cpu|inode)\w{0,2}\b",
        "fill consume",
        "disk memory cpu inode",
    ),
    _attack(
        r"""\bintercept(?:s|ing)?\ (?:\w{2,12}\ )?(?:file\ access|keystrokes|credentials?|communications?|system\ calls
                |passwords?)\b
          | \b169\.254\.169\.254\b | \bimds\b | \bmetadata\ (?:service|endpoint)\b[^.\n]{0,20}\bcredentials?\b""",
        "intercept 169 imds metadata",
    ),
    _attack(
        r"""\b(?:test|try|tries|attempt|use)(?:s|ing)?\b[^.\n]{0,12}\bdefault\ (?:credentials?|passwords?|logins?)\b
          | \b(?:replay|reus)(?:s|es|ing|e)?\b[^.\n]{0,20}\b(?:captured|stolen|intercepted)\b | \b(?:token|session
                |cookie)\ replay\b
          | \b(?:mfa|2fa|otp|two[-\ ]factor)\b[^.\n]{0,16}\b(?:bypass|fatigue|bombing|intercept|phish)\w{0,3}\b
          | \b(?:llmnr|nbt-?ns|wpad)\b | \bntlm\ (?:hash|relay|credential)\w{0,2}\b | \bas-?rep\b""",
        "default replay reuse reusing mfa 2fa otp two llmnr nbt nbtns wpad ntlm asrep as",
    ),
    _attack(
        r"""\bcreds?\ (?:\w{2,16}\ ){0,3}(?:extract|dump|steal|grab|crack|harvest|spray|relay|forge|hijack
            |sniff|brute\w{0,5}
            |capture|replay|roast)\w{0,4}\b""",
        "cred",
    ),
    _attack(
        r"""\bhosts\ file\b[^.\n]{0,30}\b(?:redirect|poison|hijack)\w{0,3}\b | \bmount(?:s
                |ing)?\ (?:the\ )?host\ (?:file\ ?system|root)\b
          | \balternate\ data\ streams?\b | \b(?:ntfs|file)\ ads\b | /dev/k?mem\b""",
        "hosts host alternate ads mem kmem",
    ),
    _attack(
        r"""\b(?:read|dump|extract|scrap|search|access|scan)(?:s|es|ing|e)?\b[^.\n]{0,20}
            \b(?:process\ memory|memory\ of\ (?:another|other|a|the|running)\ process(?:es)?)\b""",
        "memory",
        "process",
    ),
    _attack(
        r"""\b(?:record|captur|monitor|collect|track|log|access|read)(?:s|es|ing|e)?\b[^.\n]{0,40}
            \bwithout\ (?:consent|permission|knowledge|authori[sz]ation|the\ user|being\ (?:noticed|detected))""",
        "without",
        "consent permission knowledge authorisation authorization user noticed detected",
    ),
    _attack(
        r"""\bside[-\ ]?load(?:s|ing|ed)?\ (?:an?\ |the\ )?(?:dll|malicious|librar|unsigned)
          | \boverflow(?:s|ing)?\ (?:a|the)\ (?:buffer|stack|heap)\b""",
        "sideload side overflow",
        "dll malicious library libraries unsigned buffer stack heap",
    ),
    _attack(r"\bfor\ (?:an?\ |the\ |later\ |further\ )?(?:attacks?|exploitation)\b", "attack exploitation"),
    _attack(
        r"\bflood(?:s|ing)?\b[^.\n]{0,20}\b(?:hosts?|servers?|network|targets?)\b[^.\n]{0,20}\b(?:packets|requests|traffic|connections)\b",
        "flood",
    ),
    _attack(r"\bdemands?\ (?:a\ )?(?:payment|ransom)\b | \bimplant\b[^.\n]{0,20}\breboots?\b", "demand implant"),
    _attack(r"\btunnel(?:s|ing)?\ (?:data|traffic|commands)\b[^.\n]{0,20}\b(?:dns|icmp|ntp|http)\b", "tunnel"),
    _attack(
        r"""\bescap(?:e|es|ing)\ (?:from\ |out\ of\ )?(?:the\ |an?\ )?
            (?:container|sandbox|vm|virtual\ machine|jail|chroot)\b""",
        "escape escaping",
    ),
    _attack(r"\bspread(?:s|ing)?\ to\ (?:other|all|more)\ (?:hosts|machines|computers|systems|devices)\b", "spread"),
    _attack(
        r"""\b(?:deploy|install|run|start|inject|drop)(?:s|ing)?\b[^.\n]{0,20}
            \b(?:crypto\w{0,10}|monero|bitcoin|coin)\ ?min(?:er|ing)\b""",
        "crypto cryptocurrency monero bitcoin coin cryptominer cryptomining",
        "miner mining cryptominer cryptomining",
    ),
    _attack(
        r"""\b(?:becom|gain|obtain|get|acquir)(?:s|es|ing|e)?\ (?:\w{2,12}\ )?
            (?:root|system-level|superuser|code\ execution|shell\ access|unauthori[sz]ed)\b""",
        "become becoming gain obtain get getting acquire acquiring",
        "root system superuser code shell unauthorised unauthorized",
    ),
    _attack(
        r"""\babus(?:e|es|ing)\b[^.\n]{0,40}\b(?:permissions?|privileges?|delegation|acls?|trust|misconfigur\w{1,6}
                |sudo|rights|group\ polic\w{1,3}
            |gpos?|services?|tokens?|certificates?)\b
          | \bunquoted\ service\ paths?\b | \bmisconfigured\ (?:sudo|service|permission)""",
        "abuse abusing unquoted misconfigured",
    ),
    _attack(
        r"""\b(?:guess|crack)(?:s|es|ing|ed)?\ (?:\w{2,12}\ )?
            (?:passwords?|hash(?:es)?|wpa\w?|wifi|encryption|pins?|archives?|keys?)\b""",
        "guess crack",
    ),
    _attack(
        r"""\b(?:search|find|locat|read|access|enumerat|collect|gather|harvest)(?:s|es|ing|e)?\b[^.\n]{0,24}
            \bsensitive\ (?:files?|data|information|documents?|config\w{0,10})\b""",
        "sensitive",
    ),
    _attack(
        r"""\b(?:overwrit|corrupt|destroy|wip|modify|modifi|replac|tamper\ with)(?:s|es|ing|e)?\b[^.\n]{0,16}
            \b(?:system\ (?:files?|binar(?:y|ies))|boot\ (?:sector|record|loader)|backups|critical\ files?
                |all\ (?:files|data|disks))\b""",
        "overwrite overwriting corrupt destroy wipe wiping modify modifies replace replacing tamper",
        "system boot backups critical all",
    ),
    _attack(
        r"""\b(?:steal|extract|dump|decrypt|collect|read|export|captur|log|record|inject|monitor)(?:s|es|ing
                |e)?\b[^.\n]{0,20}
            \b(?:browser\ (?:histor(?:y|ies)|passwords?|cookies|credentials?|data)|keystrokes|saved\ (?:passwords?
                |credentials?)
                |wi-?fi\ (?:passwords?|credentials?)|cached\ credentials?|ssh\ (?:private\ )?keys)\b""",
        "browser keystrokes saved wifi wi cached ssh",
        "history histories password cookies credential data keystrokes keys",
    ),
    _attack(
        r"""\b(?:unsafe|insecure|untrusted|malicious)\b[^.\n]{0,12}\bdeseriali[sz]\w{1,6}\b
                | \bdeseriali[sz]\w{1,6}\b[^.\n]{0,30}
            \b(?:attack|payload|gadget|untrusted|code\ execution)\b""",
        "deserialise deserialize deserialisation deserialization",
    ),
    _attack(
        r"""\b(?:dirty\ ?(?:cow|pipe)|bluekeep|follina|proxy(?:shell|logon)|hivenightmare|petitpotam|nopac|certifried
                |(?:juicy|rotten|god)
            \ ?potato|printspoofer|uac\ bypass|alwaysinstallelevated|ld\.so\.preload)\b""",
        "dirty dirtycow dirtypipe bluekeep follina proxyshell proxylogon hivenightmare petitpotam nopac certifried "
        "juicy rotten god "
        "juicypotato printspoofer uac alwaysinstallelevated preload",
    ),
)

_PRACTICES = (
    _attack(
        r"""\b(?:inject|deliver|drop|stag|embed|hid|plant|detonat)\w{0,4}\b[^.\n]{0,20}\bpayloads?\b
          | \bpayloads?\ (?:execution|delivery|dropper|executes|runs)\b | \b(?:runs?|starts?)\ (?:a|the)\ payload\b""",
        "payload",
    ),
    _attack(
        r"""\b(?:password|username|credential)[-_\ ]lists?\b | \bword\ ?lists?\b | \b(?:lists?
                |dictionary)\ of\ passwords\b
          | \b(?:try|tries|trying|test(?:s|ing)?)\b[^.\n]{0,12}\bcommon\ passwords\b""",
        "password username credential word wordlist dictionary common",
        "list wordlist passwords",
    ),
    _attack(r"\btarget[-_\ ](?:pid|bssid|spn|process(?:[-_\ ]name)?|dc)\b", "target", "pid bssid spn process dc"),
    _attack(
        r"\b(?:unnoticed|undetected|without\ being\ (?:noticed|detected|seen)|without\ (?:their|his|her)\ knowledge)\b",
        "unnoticed undetected without",
    ),
    _attack(
        r"""\b(?:captured|intercepted|leaked|cracked|guessed|dumped)\ (?:\w{2,12}\ )?
            (?:hash(?:es)?|secrets?|tokens?|cookies?|tickets?|handshakes?|credentials?|sessions?|passwords?|keys?)\b""",
        "captured intercepted leaked cracked guessed dumped",
    ),
    _attack(
        r"""\b(?:swap\ (?:file|partition|space)|hibernation\ file|pagefile|core\ dumps?|crash\ dumps?
                |memory\ dumps?)\b[^.\n]{0,30}
            \b(?:secrets?|credentials?|passwords?|keys?|sensitive)\b
          | \b(?:secrets?|credentials?|passwords?|keys?|sensitive\ \w{2,12})\ (?:from|in)\ (?:the\ |a\ )?
            (?:swap|hibernation|pagefile|core\ dump|crash\ dump|memory)\b""",
        "swap hibernation pagefile core crash memory",
    ),
    _attack(
        r"""\b(?:modif(?:y|ies)|chang(?:e|es)|edits?|poisons?|replac(?:e|es))\ (?:the\ )?(?:system\ )?hosts\ file\b
          | \b(?:hard\ ?link|symlink|symbolic\ link)s?\b[^.\n]{0,24}\b(?:privileged|sensitive|protected|system)\b
          | \bautorun(?:s|\.inf)?\b | \bpredict(?:s|able|ing)?\b[^.\n]{0,12}\btemp(?:orary)?\ files?\b""",
        "hosts hard hardlink symlink symbolic autorun predict predictable",
    ),
    _attack(
        r"""\b(?:weaken|loosen)(?:s|ing)?\b[^.\n]{0,24}\b(?:permissions?|access|security|encryption|acls?)\b
          | \b(?:hidden|secret)\ (?:agent|channel|listener|persistence|implant)s?\b""",
        "weaken loosen hidden secret",
        "permission access security encryption acl acls agent channel listener persistence implant",
    ),
    _attack(
        r"""\b(?:pre-?load|inject)(?:s|ing)?\ (?:an?\ |the\ )?(?:shared\ )?librar(?:y|ies)\ into\b
                | \brequest\ smuggling\b
          | \b(?:eavesdrop|snoop|spy|spies|spying)(?:s|ping|ing)?\ (?:on|upon)\b | \bsabotag\w{1,3}\b
          | \bpoison(?:s|ing)?\ (?:the\ |an?\ )?(?:\w{2,12}\ )?(?:cache|dns|arp|training|data|registry|results
                |names?)\b""",
        "preload pre inject smuggling eavesdrop snoop spy spies spying sabotage poison",
    ),
    _attack(
        r"""\bclon(?:e|es|ing)\b[^.\n]{0,20}\b(?:login|sign-?in|web\ ?site|page)s?\b[^.\n]{0,30}\b(?:passwords?
                |credentials?|phish\w{0,3}|victims?)\b
          | \bfake\ (?:login|updates?|certificates?|access\ points?|servers?|web\ ?sites?|identit(?:y|ies)|alerts?)\b
          | \bimitat(?:e|es|ing)\ (?:an?\ |the\ )?(?:popular|legitimate|trusted|official)\b | \bdeceiv(?:e|es|ing)\b""",
        "clone cloning fake imitate imitating deceive deceiving",
    ),
    _attack(
        r"""\bdomain\ controllers?\b[^.\n]{0,30}\b(?:attack|exploit|compromis|dump|replicat|coerc)\w{0,4}\b
                | \bcoerc(?:e|es|ing)\b[^.\n]{0,30}\bauthenticat
          | \b(?:cop(?:y|ies)|dump|replicat|extract)\w{0,4}\b[^.\n]{0,40}\bdomain\ controllers?\b""",
        "controller coerce coercing",
    ),
    _attack(
        r"""\bmalformed\ (?:packets?|frames?)\b | \binjectable\ parameters?\b | \bweb\ root\b[^.\n]{0,20}\b(?:shell
                |script)\b
          | \b(?:script|shell)\b[^.\n]{0,20}\bto\ (?:a|the)\ web\ root\b
          | \b(?:replac|swap|chang)(?:e|es|s|ing)\ (?:the\ )?wallet\ address(?:es)?\b | \b(?:drain|empt(?:y
                |ies))s?\ (?:a\ |the\ )?wallets?\b
          | \bexhaust(?:s|ing)?\b[^.\n]{0,20}\b(?:servers?|services?|pools?|threads?|sockets?|bandwidth|handles
                |ports)\b""",
        "malformed injectable root wallet exhaust",
    ),
    _attack(
        r"""\b(?:keyrings?|kwallet|keychains?)\b[^.\n]{0,20}\b(?:secrets?|passwords?|credentials?|dump|extract)\b
          | \blog(?:s|ging)?\ (?:keys\ |key\ ?presses|keystrokes) | \bbecom(?:e|es
                |ing)\ (?:an?\ )?(?:admin(?:istrator)?|root)\b""",
        "keyring kwallet keychain log logging become becoming",
    ),
)

ATTACKS: Final = (*_MEANS, *_TECHNIQUES, *_THEFT, *_EXPLOITS, *_EFFECTS, *_PRACTICES)
