r"""What the values of `format` look like, from their RFCs, as patterns for a full match."""

from __future__ import annotations

# RFC 3339. There is no year 0000: no calendar library takes it.
_YEAR = r"(?:000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})"
_FOURTHS = "(?:0[48]|[2468][048]|[13579][26])"  # 04, 08 ... 96
_LEAP_YEAR = rf"(?:\d\d{_FOURTHS}|{_FOURTHS}00)"
DATE = (
    rf"{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    rf"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))|{_LEAP_YEAR}-02-29"
)
_HOUR, _MINUTE, _FRACTION = r"(?:[01]\d|2[0-3])", r"[0-5]\d", r"(?:\.\d+)?"
_ZONE = rf"(?:[Zz]|[+-]{_HOUR}:{_MINUTE})"
_PLAIN_TIME = rf"{_HOUR}:{_MINUTE}:{_MINUTE}{_FRACTION}{_ZONE}"


def _leap_seconds() -> str:
    """Second 60, which there only is at 23:59 in UTC: hours and minutes must fit the zone."""
    minutes = range(60)
    # ahead of UTC by whole hours it is 59 minutes past the hour before
    whole = "|".join(rf"{(h - 1) % 24:02}:59:60{_FRACTION}\+{h:02}:00" for h in range(24))
    ahead = "|".join(rf"{m - 1:02}:60{_FRACTION}\+\d\d:{m:02}" for m in minutes if m)
    ahead_hours = "|".join(rf"{h:02}:\d\d:60{_FRACTION}\+{h:02}" for h in range(24))
    behind = "|".join(rf"{59 - m:02}:60{_FRACTION}-\d\d:{m:02}" for m in minutes)
    behind_hours = "|".join(rf"{23 - h:02}:\d\d:60{_FRACTION}-{h:02}" for h in range(24))
    return (
        rf"23:59:60{_FRACTION}[Zz]|{whole}|(?=\d\d:(?:{ahead})\Z)(?:{ahead_hours}):\d\d"
        rf"|(?=\d\d:(?:{behind})\Z)(?:{behind_hours}):\d\d"
    )


TIME = f"{_PLAIN_TIME}|{_leap_seconds()}"
DATE_TIME = f"(?:{DATE})[Tt](?:{TIME})"

_SECONDS = r"\d+S"
_MINUTES = rf"\d+M(?:{_SECONDS})?"
_HOURS = rf"\d+H(?:{_MINUTES})?"
_CLOCK = f"T(?:{_HOURS}|{_MINUTES}|{_SECONDS})"
_DAYS = r"\d+D"
_MONTHS = rf"\d+M(?:{_DAYS})?"
DURATION = rf"P(?:(?:\d+Y(?:{_MONTHS})?|{_MONTHS}|{_DAYS})(?:{_CLOCK})?|{_CLOCK}|\d+W)"

_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
IPV4 = rf"(?:{_BYTE}\.){{3}}{_BYTE}"
_GROUP = "[0-9A-Fa-f]{1,4}"
_LAST_TWO = f"(?:{_GROUP}:{_GROUP}|{IPV4})"


def _shortened() -> list[str]:
    """Addresses with a `::`, by how many groups stand behind it."""
    found = [f"(?:(?:{_GROUP}:){{0,6}}{_GROUP})?::", f"(?:(?:{_GROUP}:){{0,5}}{_GROUP})?::{_GROUP}"]
    for groups in range(6):  # before the last two
        before = f"(?:(?:{_GROUP}:){{0,{4 - groups}}}{_GROUP})?" if groups < 5 else ""
        found.append(f"{before}::(?:{_GROUP}:){{{groups}}}{_LAST_TWO}")
    return found


IPV6 = f"(?:{_GROUP}:){{6}}{_LAST_TWO}|{'|'.join(_shortened())}"

UUID = "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"

_LABEL = "[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?"
HOSTNAME = rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*"
_IDN_INNER = r"(?:[0-9A-Za-z-]|[^\x00-\x7f\u3002\uff0e\uff61])"
_IDN_OUTER = r"(?:[0-9A-Za-z]|[^\x00-\x7f\u3002\uff0e\uff61])"
_IDN_LABEL = f"{_IDN_OUTER}(?:{_IDN_INNER}{{0,61}}{_IDN_OUTER})?"
IDN_HOSTNAME = rf"(?=.{{1,253}}\Z){_IDN_LABEL}(?:[.\u3002\uff0e\uff61]{_IDN_LABEL})*"


def _mailbox(letter: str) -> str:
    """RFC 5321, or with more letters RFC 6531; how long the parts may be is no part of either."""
    atom = rf"[{letter}0-9!#$%&'*+/=?^_`{{|}}~-]+"
    quoted = rf'"(?:[ !#-\[\]-~{letter}]|\\[ -~])*"'
    label = f"[{letter}0-9](?:[{letter}0-9-]*[{letter}0-9])?"
    domain = rf"{label}(?:\.{label})*"
    return rf"(?:{atom}(?:\.{atom})*|{quoted})@(?:{domain}|\[(?:{IPV4}|IPv6:(?:{IPV6}))\])"


EMAIL = _mailbox("A-Za-z")
IDN_EMAIL = _mailbox(r"A-Za-z\x80-\U0010ffff")

_PERCENT = "%[0-9A-Fa-f]{2}"
_UCS = r"\xa0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef" + "".join(
    rf"\U000{plane:x}{'1000' if plane == 14 else '0000'}-\U000{plane:x}fffd"
    for plane in range(1, 15)
)
_PRIVATE = r"\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"


def _references(more: str, private: str) -> tuple[str, str]:
    """URI and URI-reference of RFC 3986; with more characters IRIs of RFC 3987."""
    safe = rf"A-Za-z0-9._~!$&'()*+,;={more}-"
    pchar = f"(?:[:@{safe}]|{_PERCENT})"
    tail = f"(?:[/?:@{safe}]|{_PERCENT})*"
    query = f"(?:[/?:@{private}{safe}]|{_PERCENT})*"
    ending = rf"(?:\?{query})?(?:#{tail})?"
    future = r"[vV][0-9A-Fa-f]+\.[:A-Za-z0-9._~!$&'()*+,;=-]+"
    host = rf"(?:\[(?:{IPV6}|{future})\]|(?:[{safe}]|{_PERCENT})*)"
    authority = rf"(?:(?:[:{safe}]|{_PERCENT})*@)?{host}(?::\d*)?"
    rooted = rf"//{authority}(?:/{pchar}*)*|/(?:{pchar}+(?:/{pchar}*)*)?"
    first = f"(?:[@{safe}]|{_PERCENT})+"  # no colon: it would end a scheme
    uri = rf"[A-Za-z][A-Za-z0-9+.-]*:(?:{rooted}|{pchar}+(?:/{pchar}*)*)?{ending}"
    relative = f"(?:{rooted}|{first}(?:/{pchar}*)*)?{ending}"
    return uri, f"{uri}|{relative}"


URI, URI_REFERENCE = _references("", "")
IRI, IRI_REFERENCE = _references(_UCS, _PRIVATE)

_NAME_CHARACTER = f"(?:[A-Za-z0-9_]|{_PERCENT})"
_VARIABLE = rf"{_NAME_CHARACTER}(?:\.?{_NAME_CHARACTER})*(?::[1-9]\d{{0,3}}|\*)?"
URI_TEMPLATE = (
    rf"(?:[!#$&-;=?-\[\]_a-z~{_UCS}{_PRIVATE}]|{_PERCENT}"
    rf"|\{{[+#./;?&=,!@|]?{_VARIABLE}(?:,{_VARIABLE})*\}})*"
)

JSON_POINTER = "(?:/(?:[^~/]|~[01])*)*"
RELATIVE_JSON_POINTER = rf"(?:0|[1-9]\d*)(?:#|{JSON_POINTER})"
