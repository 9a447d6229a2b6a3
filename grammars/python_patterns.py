r"""What pydantic reads Python's types from, as patterns for a full match.

Each describes texts that pydantic takes whatever they are, and among them the one it writes
itself. Numbers without a bound in the type get one here: a model that repeats digits must end.
"""

from __future__ import annotations

from structspec.grammars.format_patterns import DATE, IPV4, IPV6

_HOUR, _SIXTIETH = r"(?:[01]\d|2[0-3])", r"[0-5]\d"
_ZONE = rf"(?:Z|[+-]{_HOUR}:{_SIXTIETH})"
_CLOCK = rf"{_HOUR}:{_SIXTIETH}:{_SIXTIETH}(?:\.\d{{1,6}})?"  # datetime has no leap seconds
TIME = f"{_CLOCK}{_ZONE}?"
NAIVE_DATE_TIME = f"(?:{DATE})T{_CLOCK}"
AWARE_DATE_TIME = f"{NAIVE_DATE_TIME}{_ZONE}"
ANY_DATE_TIME = f"{NAIVE_DATE_TIME}{_ZONE}?"

# six digits each stay below the 999,999,999 days that a timedelta has
_COUNT = r"\d{1,6}"
_TIME_PART = rf"T(?=\d)(?:{_COUNT}H)?(?:{_COUNT}M)?(?:{_COUNT}(?:\.\d{{1,6}})?S)?"
_DAY_PART = f"(?:{_COUNT}Y)?(?:{_COUNT}M)?(?:{_COUNT}D)?"
TIMEDELTA = rf"-?P(?:{_COUNT}W|(?=\d|T){_DAY_PART}(?:{_TIME_PART})?)"

_REAL = r"\d{1,400}(?:\.\d{1,400})?(?:[eE][+-]?\d{1,3})?"
COMPLEX = rf"-?{_REAL}(?:[+-]{_REAL}j)?|-?{_REAL}j"
FRACTION = r"-?\d{1,400}(?:/0*[1-9]\d{0,400})?"

BASE64 = "(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
BASE64_URL = "(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}==|[A-Za-z0-9_-]{3}=)?"


def uuid_of(version: int) -> str:
    """UUIDs of one version."""
    x = "[0-9A-Fa-f]"
    return f"{x}{{8}}-{x}{{4}}-{version}{x}{{3}}-[89ABab]{x}{{3}}-{x}{{12}}"


def _network(prefix: int) -> str:
    """IPv4 networks of one prefix length: the bits of hosts are zero."""
    whole, rest = divmod(prefix, 8)
    octets = [r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"] * whole
    if rest:
        octets.append(f"(?:{'|'.join(map(str, range(0, 256, 2 ** (8 - rest))))})")
    octets += ["0"] * (4 - len(octets))
    return r"\.".join(octets) + f"/{prefix}"


IPV4_NETWORK = "|".join(map(_network, range(33)))
IPV4_INTERFACE = rf"(?:{IPV4})/(?:3[0-2]|[12]?\d)"
IPV6_INTERFACE = rf"(?:{IPV6})/(?:12[0-8]|1[01]\d|[1-9]?\d)"

# URLs as the WHATWG reads them, without what it would have to repair: hosts are ASCII names with
# no two hyphens in a row (those are Punycode) that do not look like a number, or addresses.
_LABEL = "[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*"
_LAST_LABEL = "[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)*"
_HOST = rf"(?:(?:{_LABEL}\.)*{_LAST_LABEL}|{IPV4}|\[(?:{IPV6})\])"
_PORT = r":(?:[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"
_PLACE = f"{_HOST}(?:{_PORT})?"
_PERCENT = "%[0-9A-Fa-f]{2}"
_SAFE = "A-Za-z0-9._~!$&'()*+,;=-"
_USER = f"(?:(?:[:{_SAFE}]|{_PERCENT})+@)?"
_USER_OF_SEVERAL = _USER.replace(",", "")
_PCHAR = f"(?:[:@{_SAFE}]|{_PERCENT})"
_TAIL = f"(?:[/?:@{_SAFE}]|{_PERCENT})*"
_ENDING = rf"(?:\?{_TAIL})?(?:#{_TAIL})?"
_PATH = f"(?:/{_PCHAR}*)*"
_SPECIAL = "(?:https?|wss?|ftp)"
_OTHER = rf"(?!(?:{_SPECIAL}|file):)[a-z][a-z0-9+.-]*"
URL = (
    rf"(?:{_SPECIAL}|{_OTHER})://{_USER}{_PLACE}{_PATH}{_ENDING}"
    rf"|file://(?:/{_PCHAR}*)+{_ENDING}|{_OTHER}:/?{_PCHAR}+{_PATH}{_ENDING}"
)
MULTI_HOST_URL = rf"[a-z][a-z0-9+.-]*://{_USER_OF_SEVERAL}{_PLACE}(?:,{_PLACE})*{_PATH}{_ENDING}"
