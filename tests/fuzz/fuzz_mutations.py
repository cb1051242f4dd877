"""Damage to files: of bytes, of JSON and TOML documents, of pickles and zip archives.

Every function takes a valid file and a generator and returns another file. The same generator state
gives the same file, so an input is known by its seed and number alone.
"""

import io
import json
import pickletools
import random
import re
import struct
import zipfile
from collections.abc import Callable
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]

BOUNDARIES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**32 - 1, 2**63 - 1, 2**64 - 1)
# Values that no field expects, as JSON writes them; some of them are not JSON.
ODD_JSON = (
    "null", "true", "false", "0", "-1", "7", "1.5", "1e-320", "-0.0", "1e400", "-1e400", "NaN",
    "Infinity", "-Infinity", "9007199254740993", "2147483648", "-9223372036854775809", "1e18",
    "18446744073709551616", "1" + "0" * 400, "9" * 5000, '""', '"x"', '"64"', '"\\u0000"',
    '"\\ud800"', '"\\udfff\\ud800"', '"../../etc/passwd"', '"' + "a" * 70_000 + '"', "[]", "{}",
    "[[]]", "[1]", "[1,2,3,4]", "[null]", "[{}]", '{"a":1}', '{"":{}}', "[" * 900 + "]" * 900,
    "[" * 100_000 + "]" * 100_000, '{"a":' * 2000 + "1" + "}" * 2000, "[" + "0," * 50_000 + "0]",
    "0x10", "01", "'x'", "1_000", "1,", "",
)  # fmt: skip
ODD_TOML = (
    "0", "-1", "+1", "1.5", "nan", "inf", "-inf", "1e400", "9" * 30, "true", '""',
    '"x"', '"\\u0000"', '"\\ud800"', "'''\n'''", "[]", "[1]", '["a", 1]', "[[]]", "{}", "{a=1}",
    "[" * 900 + "]" * 900, "[" * 20_000 + "]" * 20_000, "1979-05-27", "07:32:00",
    "1979-05-27T07:32:00Z", '"' + "a" * 70_000 + '"', "[" + "0," * 500 + "0]", "0x10", "0o777",
    "", "#", "{a.b.c=1}", '"\x1b[2J"',
)  # fmt: skip


# ---- bytes


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    """Change some bytes, whatever they mean."""
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        data = rng.choice(_BYTE_DAMAGES)(data, rng)
    return data


def _flip(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _replace(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 2, 6))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _number(data: bytes, rng: random.Random) -> bytes:
    """Write a number of 1 to 8 bytes at the edge of its range."""
    size, order = rng.choice((1, 2, 4, 8)), rng.choice(("little", "big"))
    at = rng.randrange(max(1, min(len(data), rng.choice((100, len(data) or 1)))))
    value = rng.choice(BOUNDARIES) % 256**size
    return data[:at] + value.to_bytes(size, order) + data[at + size :]


def _splice(data: bytes, rng: random.Random) -> bytes:
    """Copy one part over, or into, another."""
    first, last = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    part = data[first : min(last, first + 400)]
    at = rng.randrange(len(data) + 1)
    end = at + (len(part) if rng.random() < 0.5 else 0)
    return data[:at] + part + data[end:]


def _remove(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at + rng.choice((1, 4, 40, 400)) :]


def _insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    noise = rng.choice((rng.randbytes(rng.randint(1, 30)), b"\0" * 64, b"\xff" * 64, b"[" * 2000))
    return data[:at] + noise + data[at:]


_BYTE_DAMAGES: tuple[Mutation, ...] = (
    _flip, _flip, _replace, _truncate, _number, _number, _splice, _remove, _insert,
)  # fmt: skip


# ---- JSON and TOML


def odd_json(data: bytes, rng: random.Random) -> bytes:
    """Replace, remove, repeat or rename entries of a JSON document."""
    document = json.loads(data)
    marks: dict[str, str] = {}
    for _ in range(rng.choice((1, 1, 2, 4))):
        document = _change_entry(document, rng, marks=marks)
    text = json.dumps(document)
    for mark, raw in marks.items():
        text = text.replace(f'"{mark}"', raw)
    return text.encode("utf-8", "surrogatepass")


def _change_entry(document: Any, rng: random.Random, *, marks: dict[str, str]) -> Any:
    """Change one place; what JSON cannot say is a mark, which is replaced in the text."""
    places = list(_places(document))
    mark = f"@{len(marks)}@"
    marks[mark] = rng.choice(ODD_JSON)
    if not places or rng.random() < 0.02:
        return mark
    parent, key = rng.choice(places)
    kind = rng.random()
    if kind < 0.6:
        parent[key] = mark
    elif kind < 0.7:
        del parent[key]
    elif kind < 0.8:  # the same key again, with another value
        marks[mark] = f"{json.dumps(parent[key])},{json.dumps(str(key))}:{marks[mark]}"
        parent[key] = mark
    elif isinstance(parent, dict):
        name = rng.choice(("", "x", "\ud800", "a" * 70_000, "__class__", f"{key} "))
        parent[name] = parent.pop(key)
    else:
        parent[key] = rng.choice(parent)
    return document


def _places(document: Any) -> Any:
    """Yield (container, key) of every entry; of long ones a part."""
    if isinstance(document, dict):
        keys: Any = list(document)[:600]
    else:
        keys = range(min(len(document), 20)) if isinstance(document, list) else ()
    for key in keys:
        yield document, key
        yield from _places(document[key])


def odd_toml(data: bytes, rng: random.Random) -> bytes:
    """Replace values, repeat or remove lines, change keys."""
    lines = data.decode().splitlines()
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        kind = rng.random()
        if kind < 0.6:
            lines[at] = re.sub(r"=.*", lambda _: f"= {rng.choice(ODD_TOML)}", lines[at])
        elif kind < 0.7:
            lines.insert(at, rng.choice(lines))
        elif kind < 0.8 and len(lines) > 1:
            del lines[at]
        elif kind < 0.9:
            prefix = rng.choice(("a.b.", '"".', "eval.", "config.", "options.", "é"))
            lines[at] = prefix + lines[at]
        else:
            lines.insert(at, rng.choice(("[eval]", "[[eval]]", "[a]", "[eval.views]", "eval = 3")))
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogatepass")


# ---- containers of weights


def odd_safetensors(data: bytes, rng: random.Random) -> bytes:
    """Change the header as JSON, with its length corrected, or not."""
    length = int.from_bytes(data[:8], "little")
    header = odd_json(data[8 : 8 + length], rng)
    right = len(header) if rng.random() < 0.9 else rng.choice(BOUNDARIES)
    return right.to_bytes(8, "little") + header + data[8 + length :]


def odd_pickle(data: bytes, rng: random.Random) -> bytes:
    """Remove, repeat, move and replace whole opcodes of the first pickle in the data."""
    starts = [at for _, _, at in pickletools.genops(data)]
    end = starts[-1] + 1  # of STOP
    pieces = [data[a:b] for a, b in zip(starts, [*starts[1:], end], strict=True)]
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, other = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        kind = rng.random()
        if kind < 0.2 and len(pieces) > 1:
            del pieces[at]
        elif kind < 0.4:
            pieces[at] = pieces[other]
        elif kind < 0.6:
            pieces.insert(at, pieces[other])
        elif kind < 0.9:
            pieces[at] = rng.choice(_ODD_OPCODES)
        else:
            pieces[at:at] = [rng.choice(_ODD_OPCODES)] * rng.choice((10, 3000))
    return b"".join(pieces) + data[end:]


def _long(value: int) -> bytes:
    digits = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(digits)]) + digits


_ODD_OPCODES = (
    *(_long(value) for value in (-1, 0, 2**31, 2**47, 2**48 - 1, 2**63, 2**64, -(2**63))),
    _long(2**2000), b"K\x00", b"M\xff\xff", b"J\xff\xff\xff\xff", b"N", b"\x88", b"\x89", b")",
    b"]", b"}", b"(", b"0", b"1", b"2", b"t", b"\x85", b"\x86", b"\x87", b"R", b"b", b"\x81", b"Q",
    b"u", b"s", b"a", b"e", b"q\x00", b"h\x00", b"r\xff\xff\xff\xff", b"j\xff\xff\xff\xff",
    b"G\x7f\xf8\0\0\0\0\0\0", b"cos\nsystem\n", b"cbuiltins\neval\n", b"c__torch__\nM\n",
    b"ctorch\nFloatStorage\n", b"ctorch._utils\n_rebuild_tensor_v2\n", b"X\x01\0\0\0a", b".",
    b"X\xff\xff\xff\x7f", b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x8b\xff\xff\xff\x7f", b"\x93",
    b"I9999999999999999999\n", b"L1\n", b"L" + b"9" * 5000 + b"L\n", b"F1e999\n", b"S'a'\n",
    b"ccollections\nOrderedDict\n", b"P0\n", b"\x82\x01", b"\x95\xff\xff\xff\xff\xff\xff\xff\xff",
)  # fmt: skip


def odd_archive(data: bytes, rng: random.Random) -> bytes:
    """Change a member of a zip archive, and write it anew with right checksums."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [[info.filename, archive.read(info)] for info in archive.infolist()]
    chosen = rng.choice([m for m in members if m[0].endswith("data.pkl")] * 4 + members)
    kind = rng.random()
    if kind < 0.8:
        is_pickle = chosen[0].endswith("data.pkl") and rng.random() < 0.8
        chosen[1] = (odd_pickle if is_pickle else damage_bytes)(chosen[1], rng)
    elif kind < 0.9:
        chosen[0] = rng.choice(("../x", "/x", "m/data.pkl", "", "a/" * 200, "m/data/1", "é\0"))
    else:
        members.remove(chosen)
    rebuilt = io.BytesIO()
    compress = rng.choice((zipfile.ZIP_STORED,) * 9 + (zipfile.ZIP_DEFLATED,))
    with zipfile.ZipFile(rebuilt, "w", compress) as archive:
        seen = set()
        for name, content in members:
            if name not in seen:  # zipfile warns about a second one
                archive.writestr(zipfile.ZipInfo(name), content, compress)
            seen.add(name)
    return rebuilt.getvalue()


def odd_zip_fields(data: bytes, rng: random.Random) -> bytes:
    """Change a number in a header or in the directory of a zip archive."""
    headers = [
        m.start() for m in re.finditer(b"PK(\x01\x02|\x03\x04|\x05\x06|\x06[\x06\x07])", data)
    ]
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.choice(headers) + rng.randrange(4, 46)
        size = rng.choice((2, 4))
        value = rng.choice(BOUNDARIES) % 256**size
        data = data[:at] + struct.pack("<H" if size == 2 else "<I", value) + data[at + size :]
    return data
