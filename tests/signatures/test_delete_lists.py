"""The lists of objects to delete: read in one way only, or refused."""

import random  # noqa: TID251 - seeded
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest

from sandur.catalog.credentials.delete_lists import BODY_CHARS_MAX, KEYS_MAX, deleted_keys
from sandur.errors import Forbidden

NAMESPACE = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
OBJECT = "<Object><Key>a</Key></Object>"


@pytest.mark.parametrize(
    "body",
    [
        f"<Delete>{OBJECT}</Delete>",
        f"<Delete{NAMESPACE}>{OBJECT}</Delete>",
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Delete{NAMESPACE}>\n {OBJECT}\n <Quiet>true</Quiet>\n</Delete>\n',
        f"<?xml version='1.0' encoding='utf-8'?><Delete><Quiet>false</Quiet>{OBJECT}</Delete>",
    ],
)
def test_the_lists_of_the_sdks_are_read(body: str) -> None:
    assert deleted_keys(body) == ["a"]


def test_references_in_keys_are_decoded() -> None:
    body = "<Delete><Object><Key>a&amp;lt;&lt;&#46;&#x2E;&apos;&quot;&gt;</Key></Object></Delete>"

    assert deleted_keys(body) == ["a&lt;<..'\">"]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("", "does not begin"),
        ("<Delete></Delete>", "is empty"),
        ("<Delete/>", "does not begin"),
        ("<Delete><Object><Key></Key></Object></Delete>", "Object in a form"),
        (f"<Delete>{OBJECT}", "not allowed"),
        (f"<Delete>{OBJECT}</Delete><Delete/>", "in a form"),
        (f"<Delete a='b'>{OBJECT}</Delete>", "does not begin"),
        (f"<!DOCTYPE a><Delete>{OBJECT}</Delete>", "does not begin"),
        (f"<Delete><!-- c -->{OBJECT}</Delete>", "in a form"),
        ("<Delete><Object><Key>a</Key><VersionId>1</VersionId></Object></Delete>", "VersionId"),
        ("<Delete><Object><VersionId>1</VersionId><Key>a</Key></Object></Delete>", "VersionId"),
        ("<Delete><Object><Key>a</Key><ETag>1</ETag></Object></Delete>", "Object in a form"),
        ("<Delete><Object><Key>a</Key><Key>b</Key></Object></Delete>", "Object in a form"),
        ("<Delete><Object><Key><![CDATA[a]]></Key></Object></Delete>", "Object in a form"),
        ("<Delete><Object><Key>a<!-- c --></Key></Object></Delete>", "Object in a form"),
        ("<Delete><Object><Key>&other;</Key></Object></Delete>", "unknown reference"),
        ("<Delete><Object><Key>&#xD800;</Key></Object></Delete>", "no character"),
        ("<Delete><Object><Key>&#9999999;</Key></Object></Delete>", "no character"),
        ("<Delete><Object><Key>a\nb</Key></Object></Delete>", "Object in a form"),
        ("<Delete><Object><Key>\ud800</Key></Object></Delete>", "half of a character"),
        (f"<Delete>{OBJECT * (KEYS_MAX + 1)}</Delete>", "more than 1000 keys"),
        ("<Delete>" + " " * BODY_CHARS_MAX, "characters"),
    ],
)
def test_everything_else_is_refused(body: str, found: str) -> None:
    with pytest.raises(Forbidden, match=found):
        deleted_keys(body)


@pytest.mark.parametrize("seed", range(10))
def test_keys_are_those_that_a_parser_of_xml_reads(seed: int) -> None:
    chance = random.Random(seed)
    letters = "ab/&<>'\"%&;#x20 üÿ日😀]]>"
    for _ in range(100):
        keys = ["".join(chance.choices(letters, k=chance.randint(1, 12))) for _ in range(chance.randint(1, 4))]
        body = f"<Delete>{''.join(f'<Object><Key>{escape(key)}</Key></Object>' for key in keys)}</Delete>"

        assert deleted_keys(body) == [node.text for node in ET.fromstring(body).iter("Key")] == keys  # noqa: S314 - own
