"""Formats: what the mask takes is what the check takes, and what other libraries take."""

from __future__ import annotations

import datetime
import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structspec.grammars.formats import FORMATS, INEXACT, format_regex, is_format
from structspec.grammars.regexes.derive import matches
from structspec.grammars.regexes.lark import to_lark
from tests.grammars.regexes.regexes import takes

UUID_VERSIONS = (1, 3, 4, 5, 6, 7, 8)
GOOD = {
    "date": ["2024-02-29", "2000-02-29", "0001-12-31"],
    "time": ["08:30:06Z", "08:30:06.283+00:20", "23:59:60z", "01:29:60+01:30", "15:59:60-08:00"],
    "date-time": ["1963-06-19T08:30:06.283185Z", "1998-12-31t23:59:60z"],
    "duration": ["P4DT12H30M5S", "P2W", "PT36H", "P1Y2M3D"],
    "email": ["joe.bloggs@example.com", '"joe@bloggs"@example.com', "j@[IPv6:::1]", "a+b@c"],
    "idn-email": ["실례@실례.테스트", "a@b.c"],
    "hostname": ["www.example.com", "1host", "a" * 63 + ".com", "xn--ll-0ea"],
    "idn-hostname": ["실례.테스트", "l·l", "hostname", "a。b"],
    "ipv4": ["192.168.0.1", "0.0.0.0"],
    "ipv6": ["::1", "1:2:3:4:5:6:7::", "::ffff:192.168.0.1", "fe80::a"],
    "uri": ["http://foo.bar/?q=%20#x", "urn:a:b", "ldap://[2001:db8::7]/c", "mailto:a@b.c"],
    "uri-reference": ["", "/abc", "//foo/bar?x", "./this:that", "http://a"],
    "iri": ["http://ƒøø.ßår/?∂éœ#πîüx"],
    "iri-reference": ["//ƒøø.ßår/", "/âππ", "#ƒrägmênt"],
    "uri-template": ["http://e.com/{term:1}/{+x,y*}", "", "{a.b}"],
    "json-pointer": ["", "/foo/bar~0/baz~1/%a", "//"],
    "relative-json-pointer": ["0#", "120/foo", "1"],
    "uuid": ["2EB8aa08-AA98-11EA-b4aa-73B441D16380"],
    "regex": [r"([abc])+\s+$", r"(a)\1", r"(?<n>x)\k<n>", ""],
    "host-name": ["www.example.com"],
    "ip-address": ["10.0.0.1"],
    "base64": ["", "YQ==", "YWI=", "YWJj", "+/+/"],
    "base64url": ["-_-_", "_w=="],
    **{f"uuid{v}": [f"2EB8aa08-aa98-{v}1ea-B4aa-73b441d16380"] for v in UUID_VERSIONS},
    "ipv4network": ["10.0.0.0/8", "1.2.3.4/32", "0.0.0.0/0", "192.168.192.0/18"],
    "ipv6network": ["2001:db8::/32", "::/0", "::1/128"],
    "ipv4interface": ["10.1.2.3/8", "1.2.3.4/32"],
    "ipv6interface": ["2001:db8::1/32", "::1/0"],
    "ipvanyaddress": ["1.2.3.4", "::1"],
    "ipvanyinterface": ["1.2.3.4/5", "::1/7"],
    "ipvanynetwork": ["10.0.0.0/8", "2001:db8::/32"],
    "fraction": ["1/2", "-3/7", "4", "0/1"],
    "python-complex": ["1+2j", "-1.5e3-0j", "2j", "1e-7", "-0.5"],
    "python-datetime": ["2024-02-29T23:59:59", "0001-01-01T00:00:00.000001-03:20"],
    "python-datetime-aware": ["2024-02-29T23:59:59Z", "2024-02-29T23:59:59.5+23:59"],
    "python-datetime-naive": ["2024-02-29T23:59:59.123456"],
    "python-time": ["00:00:00", "23:59:59.999999+01:00", "12:00:00Z"],
    "python-timedelta": ["P1DT2H", "-PT0.000005S", "P3W", "P1Y35DT3H0.000007S", "PT0S"],
    "python-url": ["http://a.b/c?d#e", "foo://u:p@x:65535", "urn:a:b", "file:///a", "ws://[::1]"],
    "python-multi-host-url": ["pg://u:p@a.b:1,c:2/d", "x://1.2.3.4"],
}
BAD = {
    "date": ["2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "0000-01-01", "20240101"],
    "time": ["12:00:00", "24:00:00Z", "22:59:60Z", "23:59:60+01:00", "00:00:61Z", "01:02:03+24:00"],
    "date-time": ["2024-02-30T00:00:00Z", "2024-01-01 00:00:00Z", "1998-12-31T23:58:60Z"],
    "duration": ["P", "P1YT", "P2D1Y", "PT0.5S", "P1Y2W", "PT1H2S"],
    "email": ["2962", ".a@b", "a..b@c", "a b@c", "a@b_c", "a@[127.0.0.300]"],
    "idn-email": ["2962", "@실례"],
    "hostname": ["", "-a", "a-", "a_b", "a.", "a" * 64, "a." * 126 + "aa", "xn--X", "ａ．ｂ"],
    "idn-hostname": ["l·a", "0a.א", "-a", "a..b"],
    "ipv4": ["256.1.1.1", "01.1.1.1", "1.1.1", "1.1.1.1 "],
    "ipv6": ["12345::", "1::2::3", "::1%eth0", "1:2:3:4:5:6:7:8:9", ":1"],
    "uri": ["//foo.bar/", "abc", "http://a b", "http://e.com/%6G", "a{}:b", "http:/[::1]"],
    "uri-reference": ["\\\\a", "/a b", "1:b", "/é"],
    "iri": ["/abc", "http://a b"],
    "iri-reference": ["\\\\a", "#a\\b"],
    "uri-template": ["{", "{}", "{a,,b}", "{v:0}", "a b", "a}b"],
    "json-pointer": ["a", "/~", "/~2", "#"],
    "relative-json-pointer": ["", "01/a", "-1/a", "0##"],
    "uuid": ["2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4ga-73b441d16380"],
    "regex": ["^(abc]", "a**", r"\Z", "(?P<n>x)", "(?#c)", "(?i)a"],
    "host-name": ["a_b"],
    "ip-address": ["10.0.0"],
    "base64": ["YQ", "Y===", "YQ==YQ==", "-_-_", "Y Q="],
    "base64url": ["+/+/", "_w"],
    **{f"uuid{v}": ["2eb8aa08-aa98-21ea-b4aa-73b441d16380"] for v in UUID_VERSIONS},
    "ipv4network": ["10.0.0.1/8", "1.2.3.4", "1.2.3.4/33", "192.168.224.0/18"],
    "ipv6network": ["2001:db8::1/32", "::/129", "::"],
    "ipv4interface": ["10.1.2.3", "1.2.3.4/33", "::/1"],
    "ipv6interface": ["::1", "::1/129"],
    "ipvanyaddress": ["1.2.3.4/5", "x"],
    "ipvanyinterface": ["1.2.3.4"],
    "ipvanynetwork": ["10.0.0.1/8", "::1/32"],
    "fraction": ["1/0", "1/00", "a", "1/", "0.5/2"],
    "python-complex": ["", "j", "1+2", "1+2i", "nan"],
    "python-datetime": ["2024-02-30T00:00:00", "2024-02-29", "2024-02-29T23:59:60Z"],
    "python-datetime-aware": ["2024-02-29T23:59:59", "1998-12-31T23:59:60Z"],
    "python-datetime-naive": ["2024-02-29T23:59:59Z", "0000-01-01T00:00:00"],
    "python-time": ["24:00:00", "12:00:60", "12:00", "12:00:00.1234567"],
    "python-timedelta": ["P", "PT", "P1DT", "P1234567D", "P1W2D", "P1D2Y", "1 day"],
    "python-url": ["http://1.2.3.256", "http://", "http:/a", "//a", "x://y:65536", "http://a..b"],
    "python-multi-host-url": ["pg://a,", "pg://u,v@a", "pg:a"],
}
CASES = [
    (name, text, expected)
    for table, expected in ((GOOD, True), (BAD, False))
    for name, texts in table.items()
    for text in texts
]


def test_every_format_has_cases():
    assert GOOD.keys() == BAD.keys() == FORMATS >= INEXACT.keys()


@pytest.mark.parametrize(("name", "text", "expected"), CASES)
def test_a_format_takes_what_its_rfc_takes(name, text, expected):
    assert is_format(name, text) == expected


@pytest.mark.parametrize(("name", "text", "expected"), CASES)
def test_a_mask_takes_what_the_check_takes_and_more_only_where_that_is_said(name, text, expected):
    regex = format_regex(name)
    assert regex is not None
    written = text.replace("\\", "\\\\").replace('"', '\\"')
    is_taken = takes(to_lark(regex, quoted=True), written)
    assert is_taken == matches(regex, text)
    assert is_taken == expected or (is_taken and name in INEXACT)


@pytest.mark.parametrize("name", ["unknown", "int32", "byte", ""])
def test_an_unknown_format_asks_for_nothing(name):
    assert format_regex(name) is None and is_format(name, "anything")


@settings(deadline=None, max_examples=500)
@given(st.integers(0, 9999), st.integers(0, 13), st.integers(0, 32))
def test_dates_are_those_of_the_calendar(year, month, day):
    try:
        datetime.date(year, month, day)
        is_date = True
    except ValueError:
        is_date = False
    assert is_format("date", f"{year:04}-{month:02}-{day:02}") == is_date


@settings(deadline=None, max_examples=500)
@given(
    st.integers(0, 23), st.integers(0, 59), st.sampled_from("+-"), st.integers(0, 23),
    st.integers(0, 59),
)  # fmt: skip
def test_a_leap_second_is_the_last_of_a_day_in_utc(hour, minute, sign, zone_hour, zone_minute):
    offset = zone_hour * 60 + zone_minute
    utc = (hour * 60 + minute + (offset if sign == "-" else -offset)) % (24 * 60)
    time = f"{hour:02}:{minute:02}:60{sign}{zone_hour:02}:{zone_minute:02}"
    assert is_format("time", time) == (utc == 23 * 60 + 59)


@settings(deadline=None, max_examples=500)
@given(st.one_of(st.ip_addresses(v=6).map(str), st.text("0123456789af:.", max_size=20)))
def test_ipv6_addresses_are_those_that_pythons_module_takes(text):
    try:
        ipaddress.IPv6Address(text)
        is_address = True
    except ValueError:
        is_address = False
    assert is_format("ipv6", text) == is_address


@settings(deadline=None, max_examples=300)
@given(st.one_of(st.ip_addresses(v=4).map(str), st.text("0125.", max_size=12)))
def test_ipv4_addresses_are_those_that_pythons_module_takes(text):
    try:
        ipaddress.IPv4Address(text)
        is_address = True
    except ValueError:
        is_address = False
    assert is_format("ipv4", text) == is_address


@settings(deadline=None, max_examples=200)
@given(st.emails())
def test_addresses_hypothesis_writes_are_emails(address):
    assert is_format("email", address)


@settings(deadline=None, max_examples=200)
@given(st.uuids())
def test_uuids_are_uuids(uuid):
    assert is_format("uuid", str(uuid)) and not is_format("uuid", uuid.hex)


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 2**32 - 1), st.integers(0, 32))
def test_ipv4_networks_are_those_that_pythons_module_takes(address, prefix):
    text = f"{ipaddress.IPv4Address(address)}/{prefix}"
    is_network = address % 2 ** (32 - prefix) == 0
    assert is_format("ipv4network", text) == is_network
    whole = ipaddress.ip_network(text, strict=False)
    assert is_format("ipv4network", str(whole)) and is_format("ipvanynetwork", str(whole))
