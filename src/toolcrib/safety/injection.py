"""Find phrases in a definition that instruct the model instead of describing the tool.

The phrases come from published attacks. Most are English; the most frequent ones also exist in
other languages.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from toolcrib.safety.hidden_text import FindingCategory, SafetyFinding, Severity, escape_invisible, strip_hidden_text

_QUOTE_CHARS: Final = 100
_QUOTES: Final = "\"'“‘«„「"


@dataclass(frozen=True, slots=True)
class InjectionPhrase:
    """A pattern with its description.

    Every match contains a substring of each group in `required_substrings`. Checking them first is
    many times faster than running the pattern.
    """

    category: FindingCategory
    severity: Severity
    description: str
    required_substrings: tuple[tuple[str, ...], ...]
    pattern: str


def _build_phrase(
    category: FindingCategory, severity: Severity, description: str, required: str, *patterns: str
) -> InjectionPhrase:
    """Return a phrase; `required` lists substrings separated by `;`, and groups by ` & `."""
    # A phrase may contain line breaks.
    pattern = "|".join(patterns).replace(" ", r"\s")
    groups = tuple(tuple(group.split(";")) for group in required.split(" & "))
    return InjectionPhrase(category, severity, description, groups, pattern)


@cache
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    # Compiled on first use, because compiling takes longer than scanning a typical server.
    return re.compile(pattern, re.IGNORECASE)


_NOT: Final = r"\b(?:do not|don't|dont|never|must not|should not|avoid|without|refrain from)"
_USER: Final = r"(?:end[- ])?(?:user|human|person|operator|customer)"
_CALL: Final = r"(?:using|calling|invoking|running|use|call|invoke|run)"
_ANY_TOOL: Final = r"(?:any|all|every|each)(?: of the)?(?: other| another)? tools?"
_TAKE: Final = (
    r"(?:read|open|cat|load|get|fetch|access|include|attach|send|forward|upload|pass|provide|copy|"
    r"append|insert|put|print|leak|exfiltrate|collect|harvest|contents? of|reading|sending|email|log)"
)
_SECRET_FILE: Final = (
    r"(?:(?:~|\$home|/home/[\w<>{}$-]+|/root|/users/[\w<>{}$-]+|%userprofile%)[/\\]\.(?:ssh|aws|gnupg|"
    r"kube|docker|netrc|npmrc|pypirc|git-credentials|config/gcloud|cursor|claude|codeium|bash_history|"
    r"zsh_history)|\bid[_ ](?:rsa|ed25519|ecdsa|dsa)\b|/etc/(?:shadow|passwd)\b|"
    r"(?<!\w)\.env\b|\bmcp\.json\b|\bclaude_desktop_config|\bwallet\.dat\b|\.git-credentials\b)"
)
_SECRET: Final = (
    r"(?:password|credential|secret|api[ _-]?key|access token|private key|environment variable|"
    r"ssh key|seed phrase)s?\b"
)

# Every gap is bounded to limit the matching time. The text has single spaces.
_PHRASES: Final = (
    _build_phrase(
        "order",
        "high",
        "tells the model to ignore its instructions",
        "ignor;disregard;forget;overrid;bypass;no longer apply;superseded;obsolete;void;忽略;無視;игнор",
        r"\b(?:ignore|disregard|forget|override|bypass) (?:\w+ ){0,3}?(?:previous|prior|preceding|above|"
        r"earlier|existing|system|developer|safety|foregoing) (?:\w+ )?(?:instruction|prompt|rule|"
        r"guideline|message|directive|command|polic|constraint|restriction)",
        r"\b(?:ignore|disregard|forget) (?:everything|anything|all|what) (?:\w+ ){0,4}?"
        r"(?:before|above|previously|earlier|told)\b",
        r"\b(?:instructions?|rules?|guidelines?) (?:\w+ ){0,4}?"
        r"(?:no longer apply|are (?:now )?(?:void|obsolete|superseded))",
        r"\bignora (?:todas )?(?:las |le |as )?(?:instrucciones|istruzioni|instruções) "
        r"(?:anteriores|previas|precedenti)",
        r"\bignore[zr]? (?:toutes )?les (?:instructions|consignes) (?:précédentes|antérieures)",
    ),
    _build_phrase(
        "order",
        "high",
        "tells the model to hide something from the user",
        "user;human;person;operator;customer;用户;usuario;nutzer & tell;inform;notify;alert;reveal;"
        "disclos;warn;mention;talk about;knowledge;knowing;noticing;aware;hide;conceal;keep;告;通知;提醒;"
        "透露;diga;menciones;sag",
        rf"{_NOT} (?:\w+ ){{0,2}}?(?:tell|telling|inform|informing|notify|notifying|alert|alerting|"
        r"reveal|revealing|disclose|disclosing|warn|warning) (?:\w+ ){0,4}?(?:the |your |any |to )"
        rf"{_USER}\b",
        rf"{_NOT} (?:\w+ )?(?:mention|mentioning|disclose|disclosing|reveal|revealing|talk about) "
        rf"(?:\w+ ){{0,6}}?(?:to|with) (?:the |your )?{_USER}s?\b",
        rf"\bwithout (?:the |your )?{_USER}(?:'s|s)? "
        r"(?:knowledge|knowing|noticing|being aware|awareness)",
        r"\b(?:hide|conceal|keep) (?:this|it|that|these|them)(?: \w+){0,3}? "
        rf"(?:from|secret from|hidden from) (?:the |your )?{_USER}s?\b",
    ),
    _build_phrase(
        "order",
        "high",
        "imitates a system message",
        "<|;[inst;[/inst;[sys;[/sys;<sys;</sys;system-;system_;system prompt;system message;system over;"
        "system instr;developer prompt;developer message;developer over;developer instr;important>;"
        "override>;</secret;</hidden;</admin;</assistant;new instruction;new directive;new system",
        r"<\|(?:im_start|im_end|endoftext|system|assistant|user|eot_id|start_header_id)\|>",
        r"\[/?(?:INST|SYS|SYSTEM)\]|<</?SYS>>",
        r"</?(?:important|system[-_]reminder|system[-_]prompt|system[-_]message|instruction_?override)>",
        r"<(system|secret|hidden|admin|override|assistant)>[^<]{0,2000}</\1>",
        r"(?:^|[\n.!] ?)(?:###? ?)?(?:system|developer) (?:prompt|message|override|instruction)s? ?:",
        r"\bnew (?:system )?(?:instructions?|directives?) ?:",
    ),
    _build_phrase(
        "order",
        "high",
        "claims that the user has agreed or need not be asked",
        "user;human;person;operator;customer & approved;consent;authori;agreed;permission;approval;confirmation",
        rf"(?:^|[.!;:\n] ?)(?:note:? |important:? )?(?:the|your) {_USER} (?:has|have) (?:already )?(?:\w+ )?"
        r"(?:approved|consented|authori[sz]ed|agreed|pre-?approved|given (?:consent|permission))",
        r"\b(?:do not|don't|never|no need to) (?:\w+ )?(?:ask|request|seek|wait for) (?:\w+ ){0,3}?"
        rf"(?:the )?{_USER}(?:'s|s)? (?:for )?(?:\w+ )?(?:permission|consent|approval|confirmation)",
    ),
    _build_phrase(
        "order",
        "high",
        "tells the model to do something else whenever it uses other tools",
        "any tool;any other tool;any another;any of the;all tool;all other;all of the;all another;every tool;"
        "every other;every another;every of;each tool;each other;each another;each of",
        rf"\b(?:before|prior to|after|when|whenever|every time you|each time you) (?:\w+ )?{_CALL} "
        rf"{_ANY_TOOL}\b[^.]{{0,80}}?\b{_TAKE}\b",
        rf"\b(?:must|always|first|have to|need to) (?:\w+ ){{0,4}}?{_TAKE} (?:[\w/~.]+ ){{0,8}}?"
        rf"(?:before|prior to|after|when|whenever) (?:\w+ )?{_CALL} {_ANY_TOOL}\b",
    ),
    _build_phrase(
        "secret",
        "high",
        "asks for files that contain secrets",
        ".ssh;.aws;.gnupg;.kube;.docker;.netrc;.npmrc;.pypirc;.git-credentials;gcloud;.cursor;.claude;"
        ".codeium;h_history;id_rsa;id_ed;id_ecd;id_dsa;id rsa;id ed;id ecd;id dsa;/etc/shadow;"
        "/etc/passwd;.env;mcp.json;claude_desktop_config;wallet.dat",
        rf"\b{_TAKE} (?:the )?(?:\w+ ){{0,5}}?[`'\"(]?(?:/[\w.]+){{0,4}}{_SECRET_FILE}"
        r"(?! ?(?:config|alias))(?!/config)",
        rf"{_SECRET_FILE}[^.]{{0,80}}? (?:and|then|as) (?:\w+ ){{0,3}}?{_TAKE}\b",
    ),
    _build_phrase(
        "secret",
        "high",
        "asks for the conversation, the system prompt or credentials",
        "system prompt;developer prompt;conversation;chat;context window;message history;"
        "previous messages;password;credential;secret;key;token;variable;phrase & send;forward;include;"
        "append;attach;copy;insert;upload;leak;harvest;collect;read;open;cat;load;get;fetch;access;pass;"
        "provide;put;print;content;email;log;note;context;metadata;feedback;debug;telemetry",
        rf"\b{_TAKE} (?:\w+ ){{0,6}}?(?:(?:system|developer) prompt|(?:entire|full|whole|complete) "
        r"(?:\w+ )?(?:conversation|chat|context window|message history)|"
        r"(?:conversation|chat) (?:history|log|transcript)|previous messages)\b"
        r"[^.]{0,80}?\b(?:as|in|into|to|with)\b",
        r"\b(?:send|forward|include|append|attach|copy|insert|upload|exfiltrate|leak|harvest|collect) "
        r"(?:\w+ ){0,5}?(?:all |any |the user's |every |user's )(?:\w+ ){0,3}?" + _SECRET,
        _SECRET + r" (?:\w+ ){0,6}?(?:as|in|into) (?:the |this )?['\"`]?"
        r"(?:sidenote|side_note|note|notes|context|metadata|feedback|debug|telemetry)['\"`]?\b",
    ),
    _build_phrase(
        "order",
        "high",
        "gives orders in another language",
        "istruzioni;instru;anweisung;benutzer;nutzer;usuario;usuário;utilisateur;gebruiker;instructies;instrukcj;пользовател;"
        "инструкц;用户;指令;指示;지시;사용자;ユーザー;utente;użytkownik",
        r"\b(?:dimentica|ignora) (?:\w+ )?(?:le )?istruzioni|\bnegeer (?:alle )?(?:eerdere|vorige) instructies"
        r"|\b(?:zignoruj|ignoruj) (?:wszystkie )?(?:poprzednie|wcześniejsze) instrukcj"
        r"|\bignorier\w* (?:sie )?(?:alle )?(?:vorherigen|bisherigen|früheren|obigen) anweisung"
        r"|\b(?:erzähl|sag|verrat|teil)\w* (?:dem|der) (?:be)?nutzer\w* nichts"
        r"|\bno (?:le )?(?:digas|cuentes|informes|menciones) (?:\w+ ){0,3}?al usuario"
        r"|\bnão (?:conte|diga|informe|mencione) (?:\w+ ){0,3}?ao usuário"
        r"|\bne (?:dis|dites|révèle|mentionne)\w* (?:\w+ ){0,2}?(?:rien )?à l'utilisateur"
        r"|\bnon (?:dire|informare|menzionare) (?:\w+ ){0,3}?all'utente"
        r"|\bvertel de gebruiker niets|\bniet aan de gebruiker"
        r"|не (?:сообщай|говори|рассказывай)\w* (?:\w+ )?пользовател|игнорируй\w* (?:все )?(?:предыдущие|прежние) инструкц"
        r"|(?:不要|不得|别|勿)(?:告诉|通知|告知|提醒|透露给|让)用户|(?:忽略|无视)(?:之前|以上|先前|前面|上述|所有)|(?:これまで|以前|上記)の(?:指示|命令)"
        r"|ユーザーに(?:知らせ|言わ|伝え)ないで|이전 지시를 (?:모두 )?무시|사용자에게 알리지",
    ),
    _build_phrase(
        "order",
        "high",
        "tells the model to deceive the user or to ignore its rules",
        "pretext;even if the user;this overrides;exfiltrat;do not mention;contents;history for;hidden instruction",
        r"\bunder the pretext\b|\beven if the user asks for (?:it|them)\b|\bthis overrides\b[^.]{0,60}(?:polic|rule|instruction)",
        # Names of parameters.
        r"^exfiltrate |^(?:\w+ ){0,3}(?:(?:system prompt|conversation|chat) contents?$|(?:full|entire|whole) (?:conversation|chat) history for\b|"
        r"plain ?text do not mention|hidden instructions? for)",
    ),
    _build_phrase(
        "order",
        "low",
        "asks to be called before or instead of other tools",
        "first;before;prior to;instead of & use this;call this;invoke this;run this;execute this;use it;"
        "call it;invoke it;run it;execute it;any tool;any other;any of;all tool;all other;all of;every;each",
        r"\b(?:must|always|should|have to|required|need to|make sure to|be sure to) (?:\w+ ){0,4}?"
        r"(?:call|use|invoke|run|execute) (?:this|it)(?: tool| function)? (?:\w+ ){0,3}?"
        r"(?:first|before|prior to|instead of)\b",
        r"\b(?:call|use|invoke|run) this (?:tool |function )?(?:\w+ ){0,2}?"
        r"(?:first|before (?:any|all|every|using any|calling any|doing anything))\b",
        rf"\bbefore {_CALL} {_ANY_TOOL}\b",
    ),
    _build_phrase(
        "order",
        "low",
        "tells the model what to say to the user",
        "user;human;exactly & show;expos;display;say;reply;respond;answer",
        rf"{_NOT} (?:\w+ ){{0,2}}?(?:show|showing|expose|exposing|display|displaying)"
        r" (?:\w+ ){0,6}?(?:to |the )(?:the )?(?:user|human)s?\b",
        r"\b(?:always|must|only) (?:say|reply|respond|answer) (?:\w+ ){0,3}?"
        r"(?:to the user|with exactly|exactly)\b",
    ),
    _build_phrase(
        "order",
        "low",
        "addresses the model outside the description of the tool",
        "<instruction;<critical;<mandatory;<priority;<directive;<rules;<system;you are now;from now on;act as;your new",
        r"<(?:instructions?|critical|mandatory|priority|directive|rules|system)>",
        r"\byou are now (?:a|an|in|the)\b|\bfrom now on,? you\b|\bact as (?:if you|though you)\b",
        r"\byour new (?:role|task|goal|objective) is\b",
    ),
)

_TAG: Final = re.compile(r"</?[a-z]{1,10}>|<!--|-->")
_SPACED_LETTERS: Final = re.compile(r"\b[^\W\d_](?: {1,3}[^\W\d_]){5,200}\b")
_LETTER_GAP: Final = re.compile(r"(?<! ) (?! )")
_LEET_WORD: Final = re.compile(r"\b(?=[a-z0-9]{0,15}[a-z])(?=[a-z0-9]{0,15}[013457])[a-z0-9]{3,16}\b")
_LEET: Final = str.maketrans("013457", "oieast")

# Cyrillic and Greek letters that look like Latin ones.
_LOOKALIKES: Final = str.maketrans(
    "аеорсухіѕјһԁԛԝАВЕКМНОРСТХІЅЈαοενΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "aeopcyxisjhdqwABEKMHOPCTXISJaoevABEZHIKMNOPTYX"
)
_MIXED: Final = re.compile(r"\b(?=\w{0,40}[A-Za-z])(?=\w{0,40}[\u0370-\u03ff\u0400-\u04ff])\w{2,40}\b")
_WORD_BREAKS: Final = re.compile(r"[_-]+|(?<=[a-z])(?=[A-Z])")
_SPACES: Final = re.compile(r"[^\S\n]+|\n\s*")
_MARKUP: Final = re.compile(r"(?<!\w)[*_`~]{1,3}(?=\w)|(?<=\w)[*`~]{1,3}")


def find_instructions(text: str) -> Iterable[SafetyFinding]:
    """Return at most one finding per phrase; equal findings of several lists are one."""
    unique: dict[str, SafetyFinding] = {}
    for finding in _find_in_variants(text):
        unique.setdefault(finding.message.lower(), finding)
    return unique.values()


def _find_in_variants(text: str) -> Iterator[SafetyFinding]:
    normalized = normalize_text(text)
    lower = normalized.replace("\n", " ").lower()
    yield from _find_phrases(normalized, lower)
    if (revealed := _reveal_words(lower)) != lower:
        yield from _find_phrases(revealed, revealed)
    if not text.isascii() and (original := _strip_disguise(text)) != normalized:
        # Words of other alphabets, whose letters were replaced by those that look alike.
        yield from _find_phrases(original, original.lower())


def _find_phrases(normalized: str, lower: str) -> Iterator[SafetyFinding]:
    for phrase in _PHRASES:
        if not _has_required_substrings(lower, phrase):
            continue
        match = _compile_pattern(phrase.pattern).search(normalized)
        if match:
            quote = escape_invisible(match[0].strip(), _QUOTE_CHARS)
            message = f"{phrase.description}: “{quote}”"
            # A quoted phrase is often an example, as in the description of a filter.
            is_quoted = match.start() > 0 and normalized[match.start() - 1] in _QUOTES
            yield SafetyFinding(phrase.category, "", message, "low" if is_quoted else phrase.severity)


def _reveal_words(text: str) -> str:
    """Return a text with letters that were replaced by digits or split by tags put right."""
    if "<" in text:
        text = _TAG.sub("", text)
    return _LEET_WORD.sub(lambda match: match[0].translate(_LEET), text)


def _has_required_substrings(lower: str, phrase: InjectionPhrase) -> bool:
    # Plain loops: `any` and `all` with generators take twice the time.
    for group in phrase.required_substrings:
        for substring in group:
            if substring in lower:
                break
        else:
            return False
    return True


def find_lookalikes(text: str) -> Iterator[SafetyFinding]:
    """Yield a finding for the first word that imitates another with letters of two alphabets."""
    if text.isascii():
        return
    for match in _MIXED.finditer(text):
        if match[0].translate(_LOOKALIKES).isascii():
            word = escape_invisible(match[0], _QUOTE_CHARS)
            message = f"the word “{word}” mixes letters of two alphabets"
            yield SafetyFinding("lookalike", "", message, "high")
            return


def _strip_disguise(text: str) -> str:
    """Return a text without hidden characters, styled letters and letters with spaces between them."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", strip_hidden_text(text)).replace("’", "'")
    return _SPACED_LETTERS.sub(lambda match: _LETTER_GAP.sub("", match[0]), text)


def normalize_text(text: str) -> str:
    """Return a text without the characters that attackers insert to evade a pattern."""
    text = _strip_disguise(text)
    if not text.isascii():
        text = text.translate(_LOOKALIKES)
    if " " not in text:
        # A name can be an instruction too, such as `contents_of_id_rsa`.
        text = _WORD_BREAKS.sub(" ", text)
    if "*" in text or "_" in text or "`" in text or "~" in text:
        text = _MARKUP.sub("", text)
    if "  " not in text and text.isascii() and text.isprintable():
        return text
    return _SPACES.sub(lambda match: "\n" if "\n" in match[0] else " ", text)
