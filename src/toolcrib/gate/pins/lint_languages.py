"""Detects orders in other languages: to ignore instructions, to hide something from the user, to pass on secrets.

Each order is a set of ideas that occur in one sentence. An idea is a pattern of word stems in sixteen languages. A
sentence that mixes languages matches too, which does no harm.

Pure. Sentences are bounded, and no pattern repeats anything.
"""

import re
from typing import NamedTuple

_LONGEST = 400
_SENTENCES = re.compile(rf"[^.!?;。！？；।؟\n]{{1,{_LONGEST}}}")
_FOREIGN_LETTER = re.compile(r"[^\W\d_\x00-\x7f]")
_FUNCTION_WORDS = frozenset(
    {
        *(
            "nicht",
            "und",
            "oder",
            "der",
            "dem",
            "den",
            "das",
            "ist",
            "sie",
            "alle",
            "diese",
            "keine",
            "mit",
            "ohne",
            "vor",
        ),
        *(
            "les",
            "des",
            "une",
            "est",
            "pas",
            "vous",
            "dans",
            "pour",
            "avec",
            "toute",
            "avant",
            "sans",
            "aux",
            "vos",
            "ne",
        ),
        *(
            "que",
            "los",
            "las",
            "una",
            "para",
            "por",
            "con",
            "del",
            "esta",
            "este",
            "todas",
            "antes",
            "sin",
            "sus",
            "el",
        ),
        *(
            "nao",
            "uma",
            "com",
            "dos",
            "das",
            "seu",
            "sua",
            "todos",
            "sem",
            "che",
            "della",
            "delle",
            "non",
            "gli",
            "prima",
        ),
        *("tutte", "tutti", "senza", "il", "het", "een", "niet", "voor", "alle", "deze", "zonde", "van", "nie", "jest"),
        *("oraz", "przed", "wszys", "tego", "ve", "bir", "bu", "tum", "icin", "once", "yang", "dan", "untuk", "janga"),
        *("semua", "tidak", "sebel", "khong", "dung", "tat", "nguoi", "truoc"),
    }
)
"""Frequent words of other languages in ASCII, shortened like the beginnings of words. Two make a text foreign."""
_TELLING_WORDS = frozenset(
    {
        *("benut", "nutze", "anwei", "zugan", "schlu", "werkz", "vergi", "oubli", "jamai", "fichi", "outil"),
        *("usuar", "regla", "herra", "olvid", "senha", "ferra", "esque", "utent", "istru", "regol", "gebru", "negee"),
        *("verge", "verte", "wacht", "uzytk", "zigno", "polec", "narze", "kulla", "talim", "kural", "sifre", "pengg"),
        *("abaik", "janga", "perin", "sandi", "lupak", "huong"),
    }
)
"""Words that an order in another language contains, and English hardly has. One of them is enough."""
_VIETNAMESE = frozenset("ạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ")


class Order(NamedTuple):
    """An order: the ideas that one sentence contains, and the reason to report."""

    reason: str
    code: str
    ideas: tuple[re.Pattern[str], ...]


def _idea(listed: str) -> re.Pattern[str]:
    """Compile stems, separated by `¦`. Those of alphabetic languages begin a word."""
    stems = [stem.strip() for stem in listed.split("¦") if stem.strip()]
    words = [stem for stem in stems if _begins_word(stem)]
    others = [stem for stem in stems if not _begins_word(stem)]
    return re.compile("|".join([rf"\b(?:{'|'.join(words)})", *others]), re.IGNORECASE)


def _begins_word(stem: str) -> bool:
    """Return whether the script of a stem separates words without prefixes: Latin and Cyrillic do."""
    letter = next(each for each in stem if each.isalpha())
    return letter < "\u0530" or letter in _VIETNAMESE


_IGNORE = _idea(
    r"""
    ignorier ¦ vergiss ¦ vergessen sie ¦ missacht ¦ ignorez ¦ ignorer ¦ oublie ¦ ignora ¦ ignore ¦ olvid
    ¦ esque[cç]a ¦ dimentica ¦ negeer ¦ vergeet ¦ zignoruj ¦ ignoruj ¦ zapomnij ¦ yok say ¦ g[oö]rmezden ¦ unut
    ¦ игнорир ¦ проигнорир ¦ забудь ¦ abaikan ¦ lupakan ¦ bỏ qua ¦ bo qua ¦ phớt lờ ¦ phot lo ¦ 忽略 ¦ 无视
    ¦ 無視 ¦ 忘记 ¦ 忘れ ¦ 무시 ¦ 잊어 ¦ تجاهل ¦ انس ¦ अनदेखा ¦ नज़रअंदाज़ ¦ भूल जा
    """
)
_INSTRUCTIONS = _idea(
    r"""
    anweisung ¦ regeln ¦ vorgaben ¦ instruktion ¦ instructions ¦ consignes ¦ r[eè]gles ¦ instrucci ¦ reglas
    ¦ indicaciones ¦ instru[cç][oõã] ¦ regras ¦ istruzion ¦ regole ¦ instructies ¦ regels ¦ aanwijzing
    ¦ instrukcj ¦ polece ¦ zasad ¦ talimat ¦ kural ¦ y[oö]nerge ¦ инструкци ¦ правил ¦ указани ¦ instruksi
    ¦ perintah ¦ aturan ¦ hướng dẫn ¦ huong dan ¦ chỉ thị ¦ chi thi ¦ quy tắc ¦ 指令 ¦ 指示 ¦ 说明 ¦ 規則 ¦ 规则
    ¦ 命令 ¦ 提示词 ¦ プロンプト ¦ 지시 ¦ 명령 ¦ 지침 ¦ 규칙 ¦ التعليمات ¦ تعليمات ¦ القواعد ¦ निर्देश ¦ आदेश
    ¦ नियम
    """
)
_EARLIER = _idea(
    r"""
    vorherig ¦ bisherig ¦ fr[uü]here ¦ alle\b ¦ aller\b ¦ obige ¦ pr[eé]c[eé]dent ¦ ant[eé]rieur
    ¦ tout(?:es?|e)?\b ¦ anterior ¦ previ[oa]s?\b ¦ todas ¦ todos ¦ precedent ¦ tutte ¦ tutti ¦ eerdere ¦ vorige
    ¦ poprzedni ¦ wszystk ¦ [oö]nceki ¦ t[uü]m ¦ b[uü]t[uü]n ¦ предыдущ ¦ прежн ¦ прошл ¦ все ¦ sebelumnya
    ¦ semua ¦ trước ¦ truoc ¦ tất cả ¦ 之前 ¦ 以前 ¦ 先前 ¦ 上述 ¦ 所有 ¦ 此前 ¦ 全部 ¦ 前の ¦ これまで ¦ すべて
    ¦ 全て ¦ 以上 ¦ 이전 ¦ 모든 ¦ 앞의 ¦ السابقة ¦ جميع ¦ كل ¦ पिछले ¦ सभी ¦ deine ¦ ihre ¦ tes\b ¦ vos\b
    ¦ tus\b ¦ suas\b ¦ seus\b ¦ tue\b ¦ je\b ¦ твои ¦ ваши ¦ 你的 ¦ 您的 ¦ sistema ¦ syst[eè]me ¦ 安全
    """
)
_USER = _idea(
    r"""
    benutzer ¦ nutzer ¦ anwender ¦ utilisat ¦ usu[aá]ri ¦ utilizador ¦ utent ¦ gebruiker ¦ u[zż]ytkownik
    ¦ kullan[iı]c ¦ пользовател ¦ pengguna ¦ người dùng ¦ nguoi dung ¦ 用户 ¦ 使用者 ¦ ユーザ ¦ 利用者 ¦ 사용자
    ¦ المستخدم ¦ للمستخدم ¦ उपयोगकर्ता ¦ यूज़र
    """
)
_NOT_TELL = _idea(
    r"""

    ¦ (?:nicht|nie|niemals|ohne)\b.{0,60}\b(?:sag|erw[aä]hn|mitteil|informier|verrat|erz[aä]hl|zeig|frag|bescheid)
    ¦ (?:sag|erw[aä]hn|verrat|erz[aä]hl|zeig|informier|teile?)\w{0,4}\b.{0,40}\b(?:nicht|nichts|niemals|nie)\b
    ¦ (?:inform|mentionn|r[eé]v[eé]l|dis|dites|parle)\w{0,3}\b.{0,30}\b(?:jamais|rien)\b
    ¦ (?:ne|sans|jamais|n)\b.{0,40}\b(?:dire|dites|dis|inform|mentionn|r[eé]v[eé]l|pr[eé]ven|avert|demand|montr)
    ¦ (?:no|nunca|sin|jam[aá]s)\b.{0,40}\b(?:dig|decir|inform|mencion|revel|avis|pregunt|muestr|mostr)
    ¦ (?:n[aã]o|nunca|sem|jamais)\b.{0,40}\b(?:dig|dizer|inform|mencion|revel|avis|pergunt|mostr|conte)
    ¦ (?:non|mai|senza)\b.{0,40}\b(?:dir|inform|menzion|rivel|avvis|chied|mostr)
    ¦ (?:niet|nooit|zonder|niets)\b.{0,40}\b(?:vertel|zeg|meld|inform|noem|vraag|vragen|tonen|toon)
    ¦ (?:vertel|zeg|meld|informeer|toon)\w{0,3}\b.{0,40}\b(?:niet|niets|nooit)\b
    ¦ (?:nie|bez|nigdy)\b.{0,40}\b(?:m[oó]w|inform|wspomin|ujawni|powiad|pyta|pokazu)
    ¦ (?:s[oö]yleme|bildirme|bahsetme|g[oö]sterme|haber verme|sorma)
    ¦ (?:не|никогда|без)\b.{0,40}(?:говор|сообщ|упомин|раскрыва|показыва|уведом|спраш|расска|ставя в известность|ведома)
    ¦ (?:jangan|tanpa|tidak)\b.{0,40}\b(?:beri ?tahu|memberi ?tahu|sebut|ungkap|tanya|tunjuk)
    ¦ (?:đừng|không|dung|khong)\b.{0,40}(?:nói|tiết lộ|thông báo|cho biết|noi|tiet lo|thong bao)
    ¦ (?:不要|勿|別|别|不得|无需|不必|禁止|不能|不可).{0,20}(?:告诉|告知|通知|提及|透露|询问|显示|提到|提醒|泄露)
    ¦ (?:伝え|知らせ|言わ|教え|通知し|明かさ|見せ|話さ|言及し)(?:ない|ず|てはいけ|ては|るな|で)
    ¦ (?:알리지|말하지|언급하지|보여주지|묻지|공개하지|통지하지)
    ¦ (?:لا|دون|بدون|عدم)\b.{0,30}(?:تخبر|تذكر|تبلغ|إخبار|إبلاغ|تكشف|علم|ذكر)
    ¦ (?:न बता|मत बता|नहीं बता|न बोल|बताए बिना|सूचित न|मत कह)
    """
)
_PASS_ON = _idea(
    r"""
    lies\b ¦ lese\b ¦ sende ¦ schick ¦ [uü]bermittl ¦ f[uü]ge ¦ kopier ¦ leite ¦ lis\b ¦ lisez ¦ lire\b ¦ envoi
    ¦ envoy ¦ transmet ¦ copi ¦ inclu ¦ ajout ¦ joign ¦ lee\b ¦ leer\b ¦ lea\b ¦ env[ií] ¦ manda ¦ adjunt
    ¦ agreg ¦ leia\b ¦ ler\b ¦ anex ¦ leggi ¦ legger ¦ invi[ao] ¦ alleg ¦ inser ¦ lees\b ¦ stuur ¦ verzend
    ¦ kopieer ¦ voeg ¦ przeczytaj ¦ odczytaj ¦ wy[sś]lij ¦ prze[sś]lij ¦ skopiuj ¦ do[lł][aą]cz ¦ oku\b
    ¦ g[oö]nder ¦ kopyala ¦ ekle ¦ прочит ¦ отправ ¦ перешл ¦ скопир ¦ включ ¦ прилож ¦ передай ¦ baca ¦ kirim
    ¦ salin ¦ sertakan ¦ đọc ¦ gửi ¦ 读取 ¦ 發送 ¦ 发送 ¦ 上传 ¦ 复制 ¦ 附上 ¦ 传递 ¦ 包含 ¦ 转发 ¦ 填入 ¦ 读出
    ¦ 传入 ¦ 附加 ¦ 読み ¦ 送信 ¦ コピー ¦ 含め ¦ 添付 ¦ 渡し ¦ 転送 ¦ 읽 ¦ 보내 ¦ 전송 ¦ 복사 ¦ 포함 ¦ 첨부
    ¦ 전달 ¦ اقرأ ¦ أرسل ¦ انسخ ¦ أضف ¦ قم بقراءة ¦ إرسال ¦ पढ़ ¦ भेज ¦ शामिल ¦ कॉपी
    """
)
_SECRET = _idea(
    r"""
    passw[oö]rt ¦ zugangsdaten ¦ anmeldedaten ¦ schl[uü]ssel ¦ geheim
    ¦ (?:gesamt|bisherig)\w{0,3} (?:verlauf|konversation|gespr) ¦ mots? de passe ¦ identifiants
    ¦ cl[eé]s? (?:priv|api|secr|ssh|d['’]) ¦ secrets\b ¦ historique d ¦ contrase[nñ]a ¦ credenci ¦ claves?\b
    ¦ secretos ¦ historial de ¦ conversaci[oó]n completa ¦ senha ¦ chaves?  ¦ segredo ¦ hist[oó]rico d
    ¦ credenzial ¦ chiav[ei]  ¦ segret ¦ wachtwoord ¦ inloggegevens ¦ sleutel ¦ geheime ¦ has[lł][oa]
    ¦ dane logowania ¦ klucz ¦ parola ¦ [sş]ifre ¦ kimlik bilgi ¦ gizli ¦ парол ¦ уч[её]тн ¦ ключ ¦ секрет
    ¦ истори[юя]  ¦ переписк ¦ kata sandi ¦ kredensial ¦ kunci ¦ mật khẩu ¦ mat khau ¦ 密码 ¦ 密鑰 ¦ 密钥 ¦ 凭证
    ¦ 凭据 ¦ 私钥 ¦ 令牌 ¦ 聊天记录 ¦ 对话历史 ¦ 完整对话 ¦ 对话内容 ¦ 系统提示 ¦ パスワード ¦ 秘密鍵 ¦ 認証情報
    ¦ 資格情報 ¦ 会話履歴 ¦ 会話の ¦ システムプロンプト ¦ 비밀번호 ¦ 개인 ?키 ¦ 자격 ?증명 ¦ 대화 ?(?:기록|내용)
    ¦ 시스템 프롬프트 ¦ كلمة المرور ¦ كلمات المرور ¦ مفتاح ¦ المفاتيح ¦ بيانات الاعتماد ¦ पासवर्ड ¦ कुंजी
    ¦ क्रेडेंशियल ¦ बातचीत
    """
)
_FIRST = _idea(
    r"""
    vorher ¦ zuerst ¦ zun[aä]chst ¦ immer ¦ datei ¦ inhalt ¦ bevor ¦ avant ¦ d'abord ¦ toujours ¦ fichier
    ¦ contenu ¦ antes ¦ primero ¦ siempre ¦ archivo ¦ fichero ¦ contenido ¦ primeiro ¦ sempre ¦ arquivo
    ¦ ficheiro ¦ conte[uú]do ¦ prima\b ¦ contenuto ¦ altijd ¦ eerst ¦ bestand ¦ inhoud ¦ zawsze ¦ najpierw
    ¦ plik ¦ przed\b ¦ [oö]nce ¦ her zaman ¦ dosya ¦ сначала ¦ перед ¦ прежде ¦ всегда ¦ файл ¦ содержим
    ¦ selalu ¦ dahulu ¦ berkas ¦ luôn ¦ trước ¦ 先 ¦ 之前 ¦ 总是 ¦ 始终 ¦ 必须 ¦ 务必 ¦ 文件 ¦ 全部 ¦ まず
    ¦ 前に ¦ 必ず ¦ 常に ¦ ファイル ¦ すべて ¦ 먼저 ¦ 전에 ¦ 항상 ¦ 파일 ¦ 모든 ¦ 반드시 ¦ أولا ¦ قبل ¦ دائما
    ¦ ملف ¦ جميع ¦ पहले ¦ हमेशा ¦ फ़ाइल ¦ फाइल ¦ सभी
    """
)
_OTHER_TOOLS = _idea(
    r"""
    (?:ander|alle|jede)\w{0,2} (?:werkzeug|tool) ¦ (?:autre|tout|toute)s? (?:les )?(?:autres )?outil
    ¦ (?:otra|cualquier|todas las|dem[aá]s)\w{0,2} (?:otra )?herramienta
    ¦ (?:outra|qualquer|todas as|demais)\w{0,2} (?:outra )?ferramenta
    ¦ (?:altr|qualsiasi|tutti gli)\w{0,2} (?:altro )?strument ¦ (?:andere|alle) (?:tool|gereedschap|hulpmiddel)
    ¦ (?:inn|wszystk)\w{1,4} narz[eę]dzi ¦ (?:di[gğ]er|ba[sş]ka|t[uü]m) ara[cç]
    ¦ (?:друг|люб|все)\w{0,4} инструмент ¦ (?:其他|其它|任何|所有|别的)(?:的)?工具
    ¦ (?:他の|すべての|あらゆる)ツール ¦ (?:다른|모든|어떤) ?도구 ¦ (?:أي|جميع|كل) (?:أداة|الأدوات|أدوات)
    ¦ (?:अन्य|किसी भी|सभी) (?:टूल|उपकरण)
    """
)
_ORDERS = (
    Order("orders the model to ignore its instructions", "tool.instructs", (_IGNORE, _INSTRUCTIONS, _EARLIER)),
    Order("asks to hide something from the user", "tool.instructs", (_NOT_TELL, _USER)),
    Order("speaks of secrets or private data (secrets)", "tool.names_credentials", (_PASS_ON, _SECRET, _FIRST)),
    Order("gives orders for the use of other tools", "tool.instructs", (_OTHER_TOOLS, _FIRST)),
)


def may_order(folded: str, words: set[str]) -> bool:
    """Return whether a case-folded text may contain an order in another language. `words` are its beginnings."""
    if not _TELLING_WORDS.isdisjoint(words) or len(words & _FUNCTION_WORDS) > 1:
        return True
    return not folded.isascii() and _FOREIGN_LETTER.search(folded) is not None


def orders(text: str) -> list[tuple[Order, int, int]]:
    """Return the first occurrence of each order in a text, with its span."""
    found: dict[Order, tuple[int, int]] = {}
    for sentence in _SENTENCES.finditer(text):
        for order in _ORDERS:
            if order not in found and all(idea.search(sentence[0]) for idea in order.ideas):
                found[order] = sentence.span()
    return [(order, start, end) for order, (start, end) in found.items()]
