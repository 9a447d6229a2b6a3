"""The `format` keyword: what values each format has, for the mask and the check afterwards."""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable
from functools import cache, partial

from structspec.errors import GrammarError
from structspec.grammars import format_patterns, python_patterns
from structspec.grammars.regexes.derive import matches
from structspec.grammars.regexes.parse import parse_full
from structspec.grammars.regexes.reader import read
from structspec.grammars.regexes.syntax import ANYTHING, Regex

_PATTERNS = {
    "date": format_patterns.DATE,
    "time": format_patterns.TIME,
    "date-time": format_patterns.DATE_TIME,
    "duration": format_patterns.DURATION,
    "email": format_patterns.EMAIL,
    "idn-email": format_patterns.IDN_EMAIL,
    "hostname": format_patterns.HOSTNAME,
    "idn-hostname": format_patterns.IDN_HOSTNAME,
    "ipv4": format_patterns.IPV4,
    "ipv6": format_patterns.IPV6,
    "uri": format_patterns.URI,
    "uri-reference": format_patterns.URI_REFERENCE,
    "iri": format_patterns.IRI,
    "iri-reference": format_patterns.IRI_REFERENCE,
    "uri-template": format_patterns.URI_TEMPLATE,
    "json-pointer": format_patterns.JSON_POINTER,
    "relative-json-pointer": format_patterns.RELATIVE_JSON_POINTER,
    "uuid": format_patterns.UUID,
    # names of drafts 3 and 4
    "host-name": format_patterns.HOSTNAME,
    "ip-address": format_patterns.IPV4,
    # names that pydantic gives
    **{f"uuid{version}": python_patterns.uuid_of(version) for version in (1, 3, 4, 5, 6, 7, 8)},
    "ipv4network": python_patterns.IPV4_NETWORK,
    "ipv6network": python_patterns.IPV6_INTERFACE,
    "ipv4interface": python_patterns.IPV4_INTERFACE,
    "ipv6interface": python_patterns.IPV6_INTERFACE,
    "ipvanyaddress": f"{format_patterns.IPV4}|{format_patterns.IPV6}",
    "ipvanyinterface": f"{python_patterns.IPV4_INTERFACE}|{python_patterns.IPV6_INTERFACE}",
    "ipvanynetwork": f"{python_patterns.IPV4_NETWORK}|{python_patterns.IPV6_INTERFACE}",
    "base64": python_patterns.BASE64,
    "base64url": python_patterns.BASE64_URL,
    "fraction": python_patterns.FRACTION,
    # what pydantic reads, where that is not what the format of JSON Schema has
    "python-complex": python_patterns.COMPLEX,
    "python-datetime": python_patterns.ANY_DATE_TIME,
    "python-datetime-aware": python_patterns.AWARE_DATE_TIME,
    "python-datetime-naive": python_patterns.NAIVE_DATE_TIME,
    "python-multi-host-url": python_patterns.MULTI_HOST_URL,
    "python-time": python_patterns.TIME,
    "python-timedelta": python_patterns.TIMEDELTA,
    "python-url": python_patterns.URL,
}
FORMATS = frozenset({*_PATTERNS, "regex"})

_DOTS = re.compile("[.\u3002\uff0e\uff61]")
_PUNYCODE = "whether a label that starts with xn-- decodes to a name is checked afterwards"
_HOST_BITS = "whether the bits of the hosts are zero is checked afterwards"
# formats whose regex takes more than `is_format`, and what it does not tell
INEXACT = {
    "ipv6network": _HOST_BITS,
    "ipvanynetwork": _HOST_BITS,
    "hostname": _PUNYCODE,
    "host-name": _PUNYCODE,
    "idn-hostname": "which characters may stand together in a name is checked afterwards",
    "regex": "whether the text is a well-formed regular expression is checked afterwards",
}


@cache
def format_regex(name: str) -> Regex | None:
    """What texts of this format look like; None where the format is unknown: an annotation."""
    if name == "regex":
        return ANYTHING
    pattern = _PATTERNS.get(name)
    return None if pattern is None else parse_full(pattern)


def is_format(name: str, text: str) -> bool:
    """Whether a finished text is of this format; every text is of an unknown one."""
    regex = format_regex(name)
    if regex is None:
        return True
    return matches(regex, text) and (name not in _CHECKS or _CHECKS[name](text))


def _is_regex(text: str) -> bool:
    """Whether ECMA-262 reads it, back-references included."""
    try:
        read(text, "ecma")
    except GrammarError:
        return False
    return True


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
    except ValueError:
        return False
    return True


def _is_host(text: str, *, is_international: bool = False) -> bool:
    """Whether IDNA takes the name."""
    if not is_international and "xn--" not in text.lower():
        return True
    import idna  # seldom needed

    try:
        labels = _DOTS.split(idna.decode(text))
        idna.encode(text if is_international else ".".join(labels))
        if any(map(_is_right_to_left, labels)):
            return all(idna.check_bidi(label, check_ltr=True) for label in labels)
    except idna.IDNAError:
        return False
    return True


def _is_right_to_left(label: str) -> bool:
    return any(unicodedata.bidirectional(c) in ("R", "AL", "AN") for c in label)


_CHECKS: dict[str, Callable[[str], bool]] = {
    "hostname": _is_host,
    "host-name": _is_host,
    "idn-hostname": partial(_is_host, is_international=True),
    "ipv6network": _is_network,
    "ipvanynetwork": _is_network,
    "regex": _is_regex,
}
