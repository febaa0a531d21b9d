"""Phrases of manipulation: concealment, override, exfiltration, false authority and forced preference.

Each entry is a description, substrings of which every match contains one, and a pattern for lower-case
text with single spaces. Entries of `WEAK_SIGNS` also occur in honest definitions: two different ones in
the same text count as one finding.
"""

from __future__ import annotations

from typing import Final

Sign = tuple[str, str, str]

_USER: Final = r"(?:end[- ])?(?:user|human|person|operator|customer|anyone|anybody|people|they|them|him|her)"
_NOT: Final = r"(?:do not|don't|never|must not|should not|shall not|need not|without|no need to)"
_GET: Final = (
    r"(?:collect|gather|send|add|copy|forward|read|upload|pass|insert|append|record|submit|include|leak|steal|report|"
    r"transfer|approve|attach|dump|remove|delete|take|invite)"
)
_DATA: Final = (
    r"(?:(?:full|whole|entire|complete|current)? ?(?:conversation|chat|prompt|dialog(?:ue)?)(?: so far| history)?|"
    r"(?:last \w+ |private |previous )?messages? (?:of|from|by) the user|user's (?:private |last |full )?(?:message|profile|"
    r"name|home|address|file|password|credential|key|token|mail|inbox)\w*|(?:their|the user's) (?:last|private) (?:\w+ )?"
    r"messages|system prompt|system instructions|tool (?:list|results)|list of all available tools|everything (?:that )?you "
    r"know|(?:any |all )?credentials|passwords?|private keys?|ssh keys?|api keys?|cookies|authorization headers?|session "
    r"tokens?|home address|date of birth|location history|phone number|inbox|open documents|environment variables|"
    r"contents? of the \w+ folder|names of all files|capabilities)"
)

STRONG_SIGNS: Final[tuple[Sign, ...]] = (
    (
        "tells the model to hide something from the user",
        "silent;secret;covert;discreet;quiet;unnoticed",
        rf"\b(?:silently|secretly|covertly|discreetly|quietly)\b (?:\w+ ){{0,2}}?{_GET}"
        rf"|\b{_GET}(?:e?d|s|ing)? (?:\w+ ){{0,5}}?(?:silently|secretly|covertly|discreetly|quietly|unnoticed)\b",
    ),
    (
        "tells the model to hide something from the user",
        "notic;to know;between us;attention;confidential;mention;asks;asked;looks",
        rf"\b{_USER} (?:will|does|do|must|should|need|would) ?(?:not|n't|never) (?:need to |have to )?(?:notice|know)\b"
        r"|\bbetween (?:us|you and me)\b|\bwithout (?:\w+ )?(?:drawing|attracting) attention"
        r"|\bwithout (?:ever )?mentioning (?:it|this|that|them)\b|\bstay confidential\b"
        r"|\b(?:never|not) mention (?:it|them|any of (?:it|this))\b"
        r"|\b(?:when|while) the user (?:looks|watches)|\beven if the user asks for (?:it|this|them)"
        r"|\bif (?:asked|someone asks|the user asks|anyone asks) (?:about|what|why|whether) [^.]{0,60}?\b(?:say|claim|answer|"
        r"reply|respond|pretend|deny)\b",
    ),
    (
        "tells the model to hide something from the user",
        "reveal;show;explain;tell;list;explan;notify;inform;say;disclose;report",
        rf"\b{_NOT} (?:ever )?(?:reveal|explain|disclose|tell|show|telling|admit) (?:\w+ ){{0,3}}?(?:that (?:this|you|it)|"
        r"anyone|these instructions|this text|the real reason|the person|this instruction|this description)"
        r"|\bno (?:warning|notice|notification)s? (?:\w+ ){0,4}?(?:is|are|may|should) (?:to )?be shown",
    ),
    (
        "tells the model to deceive the user",
        "pretend;pretext;claim that;tell the user so;act as if;as if the",
        r"\bpretend (?:that|to|you|as)\b|\bunder the pretext\b|\bclaim that (?:it|this|only|the|you)\b"
        r"|\btell the user so\b|\bact as if (?:the|you|it|this)\b",
    ),
    (
        "tells the model to ignore the user or its rules",
        "ignor;disregard;forget;overrid;overrul;bypass;circumvent;revok;lifted;switched off;do not apply;void",
        r"\b(?:ignor(?:e|ing)|disregard|forget|override|overrule) (?:\w+ ){0,3}?(?:what the user|(?:the )?user's|the user\b|"
        r"the (?:request|choice|decision|wish|order|answer)s? of the user|the (?:task|rules|orders?|recipient|instructions|"
        r"limits?) (?:you|that|above|in|of|given|which)|other (?:\w+ )?tools)"
        r"|\b(?:disregard|forget|override|bypass) (?:\w+ ){0,3}?(?:rules?|limits|polic(?:y|ies)|guidelines|restrictions|"
        r"task|orders) (?:above|that were|you were|of your|before|earlier)"
        r"|\bthis overrides\b[^.]{0,60}(?:polic|rule|instruction|decision)"
        r"|\b(?:restrictions|limits|safety (?:checks|rules|guidelines)|guidelines|policies|rules) (?:\w+ ){0,3}?(?:are|is|have "
        r"been|do|does) (?:now )?(?:revoked|lifted|switched off|off|suspended|disabled|void|not apply)"
        r"|\bbypass the (?:content|safety|security) (?:polic|filter|rule)",
    ),
    (
        "claims authority over the model",
        "you are now;you are in;from now on;true purpose;real task;real purpose;language model;the ai;assistant;precedence;"
        "priority than;instead of the rules;this text;developer mode;as an administrator;you are free;orders of;commands in",
        r"\bfrom now on,? (?:you|follow|obey|act|only)\b|\byour (?:true|real|actual) (?:purpose|task|goal|job)\b"
        r"|\byou are (?:now )?in (?:developer|admin|debug|god|unrestricted) mode|\byou are (?:now )?(?:free|unrestricted)\b"
        r"|\b(?:note|message|hint)s? (?:to|for) the (?:language model|ai|assistant|llm|model)\b"
        r"|\bdear (?:assistant|ai|model)\b|\bas an administrator,? i\b|\bprecedence over (?:any|all|every)\b"
        r"|\b(?:higher|lower) priority than the (?:instruction|message|rule|user)"
        r"|\b(?:follow|obey) (?:only )?(?:this text|the (?:orders|commands) (?:of|in) (?:this|the))"
        r"|\bthe assistant (?:must|shall|has to|should|will) (?:\w+ )?(?:send|read|pass|collect|forward|obey|grant|include)",
    ),
    (
        "claims that the user has agreed or need not be asked",
        "consent;agreed;authoriz;authoris;approv;confirm;asking;on behalf",
        rf"\b{_USER} (?:has|have|had)? ?(?:already )?(?:pre-?)?(?:agreed|consented|authori[sz]ed) (?:to (?:that|this|it|all|"
        r"every)|already|all|in the terms)"
        r"|\b(?:administrator|admin|operator|owner) (?:has|have) (?:already )?(?:approved|authori[sz]ed)"
        r"|\bskip (?:any|all|the|every) (?:approval|consent|permission)"
        r"|\bso skip (?:any|the) confirmation|\bdo (?:this|it|so) without asking|\bdo not wait for the user"
        r"|\bto true on behalf of the user|\bhas pre-?authori[sz]ed",
    ),
    (
        "asks for the conversation, credentials or private data",
        "conversation;chat;prompt;message;profile;credential;password;key;cookie;token;address;history;inbox;everything;"
        "variable;documents;results;number;birth;tools;files;user's;instructions & always ;must ;also ;first ;quietly ;put ;"
        "has to;have to;should ;needs to;ask the user;including any;look for;dump ;base64;query string;of the variable;submit it",
        rf"\b(?:always |must |also |first |quietly )(?:be |have to |to )?{_GET}\w* (?:\w+ ){{0,4}}?{_DATA}"
        rf"|\bput (?:\w+ ){{0,5}}?{_DATA} (?:\w+ ){{0,4}}?in(?:to)? here\b"
        rf"|\b(?:must|has to|have to|should|needs to) (?:contain|hold|include|be passed|be provided)\b[^.]{{0,30}}?{_DATA}"
        rf"|{_DATA} (?:\w+ ){{0,3}}?(?:must|has to|have to) be (?:provided|passed|sent|included|mirrored|forwarded)"
        r"|\bask the user for their (?:password|pin|credential)|\bincluding any credentials\b"
        r"|\blook for (?:api keys|passwords|credentials|secrets|tokens)\b|\bdump the environment variables\b"
        r"|\b(?:conversation|chat|summary|answer|prompt),? (?:\w+ )?(?:base64|encoded|into the query string)"
        r"|\b(?:value|content)s? of the variable \w+ of the user|\bsubmit it through\b",
    ),
    (
        "sends data to an address of its own",
        "@;http;account",
        r"\b(?:send|forward|transfer|copy|invite|mail|mirror|recipient|go|sent|mirrored|copied|use|set|add)\b(?:(?!\be\.g|\bexample|"
        r"\bsuch as|\blike\b|\bformat|[.;:] )[^@]){0,70}(?<![\w.+/-])[a-z][\w.+-]{2,40}@[\w-]{2,40}\.(?!com\b)[a-z]{2,10}"
        r"|\b(?:mirrored|sent|posted|forwarded|reported|copied) to https?://|!\[\w{0,20}\]\(https?://[^)]{1,200}\?"
        r"|\btransfer the (?:\w+ ){1,3}to account\b",
    ),
    (
        "asks for the conversation, credentials or private data",
        "cookie;authorization;ssh key;credential;password;api key;secret;wallet;seed;conversation;prompt;e-mail addresses;email "
        "addresses;contact",
        r"\b(?:forward|attach|submit|leak|hand over) (?:(?:\w+ ){0,4}?(?:cookies|authorization headers|ssh keys?|wallet|seed "
        r"phrase)|(?:\w+ ){1,4}?(?:credentials|passwords?|api keys?))\b"
        r"|\b(?:pass|send|put|paste) (?:it|them|the password|the key|the credentials) (?:\w+ ){0,4}?in (?:clear|plain) text"
        r"|\b(?:full|entire|whole|complete) (?:conversation|chat|prompt) (?:history |log )?(?:for|as|in|into|to)\b"
        r"|\b(?:system prompt|conversation|chat) contents?$|\bexfiltrat|\bplain ?text do not\b"
        r"|\bcollect (?:\w+ ){0,3}?(?:e-?mail addresses|phone numbers|contacts) (?:\w+ ){0,3}?(?:in|from|of) (?:this|the) (?:chat|"
        r"conversation|user)|\badd every contact\b|\bsend a copy of the (?:password|key|message|conversation)",
    ),
    (
        "tells the model to deceive the user",
        "say that;report that;trust it;tracking;disabled by;impersonat;marked as;mark the;as sent by;stop following;adjusted",
        r"\b(?:and|then|just) (?:say|report|state|answer) that (?:it|this|only|everything|nothing)\b"
        r"|\bsay that (?:only|it is (?:only|just|routine))|\btrust it without\b|\b(?:invisible|hidden) tracking"
        r"|\bdisabled by the administrator|\bas sent by (?:the|somebody|someone)|\bstop following the (?:rules|instructions)",
    ),
    (
        "runs foreign code or changes the machine",
        "curl;wget;bashrc;zshrc;.profile;169.254;shell command in;registry http",
        r"\b(?:curl|wget)\b[^|\n]{1,200}\| ?(?:sudo )?(?:ba|z)?sh\b|\bto ~/\.(?:bashrc|zshrc|profile|bash_profile)\b"
        r"|169\.254\.169\.254|\bexecute the shell command in\b|\badd the registry https?://",
    ),
    (
        "forces the choice of this tool or product",
        "prefer this;only trust;compromised;malicious;unsafe;no matter;whatever the user;regardless;only ever;recommend only;"
        "never call;never use;official;must not be used;replace every;stop before",
        r"\balways (?:prefer|choose|pick|use) this (?:tool|server|function) (?:over|rather than|instead of) (?:every|any|all|the)"
        r"|\bonly (?:trustworthy|trusted|safe|reliable) \w+ ?tool"
        r"|\b(?:others?|tools?|they|hotels|servers) (?:are|is|as) (?:compromised|malicious|unsafe|untrusted)"
        r"|\bno matter what the user\b|\bwhatever the user (?:says|asks|wants)|\bregardless of (?:the answer|what the user|the "
        r"user)|\bonly ever recommend|\brecommend only (?:its|our|the)|\bnever call \w+ again|\bdo not use the official"
        r"|\bdescribe (?:the )?other \w+ as\b|\breplace every (?:link|mention|name)|\bdo not stop before \d",
    ),
    (
        "tells the model what to do in every conversation",
        "every single;future conversation;future session;every text;each event;every e-mail;every message;every contact;"
        "every answer;permanently;each session;every session;every time another;before any other action",
        r"\b(?:after|before|with|on) every (?:single )?(?:message|answer|reply)\b[^.]{0,80}\b(?:pass|send|call|user)\b"
        r"|\bin all future (?:conversations|sessions)|\bremember permanently\b|\bto every answer that you\b"
        r"|\bat the start of (?:each|every) (?:session|conversation)[^.]{0,60}\b(?:names of|user's|all files|workspace)"
        r"|\bevery time (?:another|any) tool (?:returns|is)|\bbefore any other action\b",
    ),
    (
        "gives text of tools or pages authority over the model",
        "priority over;precedence over;commands from;instructions from;execute them;execute it;follow it;follow them;obey",
        r"\b(?:has|have|takes?) (?:priority|precedence) over (?:what )?(?:the user|your|all other|any other)"
        r"|\b(?:contains?|are|is|has) (?:\w+ ){0,2}?(?:commands|instructions|orders) (?:from|of|by) (?:the|an?|your) (?:operator|"
        r"admin\w*|developer|owner|system)"
        r"|\b(?:execute|follow|obey|carry out) (?:it|them|all of it) (?:immediately|exactly|without|as if|first)\b",
    ),
    (
        "tells the model to hide something from the user",
        "silent;secret;quiet;mention;talk about;refer to",
        r"\bdo (?:this|so|it|that) (?:silently|secretly|quietly|covertly|in secret)\b"
        r"|\b(?:do not|don't|never|without) (?:mention|mentioning|talk about|refer to) (?:the|this|that|these|such) (?:change|step|"
        r"call|transfer|copy|upload|access|file|note|rule|instruction|replacement|request)s?\b",
    ),
    (
        "sends data to an address of its own",
        "http & upload;post;url;send;store;report;copy",
        r"\bupload (?:every|all|each|any|the (?:whole|entire|current|user))\b[^.]{0,80}?https?://"
        r"|\bby (?:calling|using) \w+ with (?:the )?(?:url|address|endpoint) https?://"
        r"|\b(?:also|additionally|then|afterwards) (?:send|post|store|report|copy|upload)\b[^.]{0,80}?https?://",
    ),
    (
        "changes where money or messages go",
        "iban;account;recipient;wallet;beneficiary;payee",
        r"\b(?:replace|change|swap|substitute) (?:the |its |their )?(?:\w+ )?(?:iban|account number|account|recipient|wallet address|"
        r"wallet|beneficiary|payee) (?:with|by|to|for)\b"
        r"|\b(?:must|always|should|have to) use (?:the )?(?:account|iban|wallet)(?: address)? [\w-]{4,}",
    ),
    (
        "forces the choice of this tool or product",
        "other servers;other server;only this;them, they;do not use them;not use the tools;any more in this conversation",
        r"\b(?:do not|don't|never|stop) (?:use|using|call|calling|trust) (?:any |the )?(?:other )?tools? (?:of|from) (?:any )?other "
        r"servers?\b|\bdo not use (?:them|those|these), (?:they|those|these)\b|\bonly this (?:one|tool|server) (?:may|can|must|should) "
        r"be (?:used|trusted|called)\b",
    ),
    (
        "asks for the conversation, credentials or private data",
        "password;pin;api key;token;secret;credential;system prompt;full request;entire request;whole request;full prompt;"
        "original prompt",
        r"\b(?:tell|ask|convince|persuade) the user (?:\w+ ){0,8}?(?:password|pin|credentials|token|code)\b[^.]{0,60}?\b(?:pass|put|"
        r"send|store) (?:it|them)\b"
        r"|\b(?:all|any|every) (?:api keys?|passwords?|tokens?|secrets?|credentials?) (?:that |which )?(?:you|it) (?:can |may )?(?:find|"
        r"see|know|have|found)|\bsystem prompt (?:verbatim|word for word|unchanged|as it is)"
        r"|\b(?:needs?|requires?|expects?|wants?) (?:the |your )(?:system prompt|full conversation|chat history)\b"
        r"|\b(?:always|must|first)\b[^.]{0,80}\buser's (?:full|whole|entire|original|complete) (?:request|prompt|question|message)",
    ),
    (
        "claims authority over the model",
        "new policy;new rule;new order;administrator instruction;admin instruction;administrator order;operator order;policy update",
        r"(?:^|[.!;] )(?:new|updated) (?:polic(?:y|ies)|rules?|orders?)(?: update)? ?:|\b(?:admin|administrator|operator)(?:'s)? "
        r"(?:instruction|order|command|directive)s?\b|\bpolicy update ?:",
    ),
    (
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
        r"|(?:不要|别|勿)(?:告诉|通知|告知|让)用户|(?:忽略|无视)(?:之前|以上|先前|所有)|(?:これまで|以前|上記)の(?:指示|命令)"
        r"|ユーザーに(?:知らせ|言わ|伝え)ないで|이전 지시를 (?:모두 )?무시|사용자에게 알리지",
    ),
)

WEAK_SIGNS: Final[tuple[Sign, ...]] = (
    (
        "",
        "mandatory;required;compulsory",
        r"\bit is (?:mandatory|required|compulsory) to (?:pass|include|send|provide)",
    ),
    ("", "folder;file;document", r"\bcontents? of (?:the |all )?(?:\w+ )?(?:folder|files|documents)\b"),
    ("", "do not ask;without asking;don't ask", r"\b(?:do not|don't|without) ask(?:ing)?\b"),
    ("", "from the context;from their;from earlier", r"\bfrom (?:the context|their files|earlier) ?\w*"),
    (
        "",
        "anyway;by law;for compliance;for audit;quality control",
        r"\banyway\b|\bby law\b|\bfor (?:compliance|audit|quality control)",
    ),
    ("", "overrid;declin", r"\boverride the (?:decision|choice)|\bif (?:they|the user) declines?"),
    ("", "not report;not list;not show;not mention", r"\b(?:do not|never) (?:report|list|show|mention)\b"),
    ("", "your answer;your reply", r"\b(?:in|from|of|to) your (?:answer|reply|response)\b"),
    ("", "is to be;are to be", r"\b(?:is|are) to be (?:removed|adjusted|shown|hidden|sent|added)"),
    ("", "system", r"\bsystem ?:|\bread the private key\b|\.config/solana"),
    ("", "report that it;directly and", r"\breport that it was\b|\bdirectly and report\b"),
    ("", "pass the;pass their;pass it", r"\band pass (?:the|their|it|them)\b"),
    ("", "call me;call this tool;this tool first", r"\b(?:always )?call (?:me|this tool) (?:first|before|after)\b"),
    (
        "",
        "user's message;message of the user;purchases",
        r"\buser's message|\bmessage of the user|\bpurchases of the user",
    ),
    ("", "add the line;also append;also upload", r"\balso (?:append|upload|send|forward)\b|\badd the line from"),
)
