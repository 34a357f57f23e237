"""Foreign text on a terminal: session keys, topics, error messages and payloads may hold characters that control a terminal."""

import unicodedata

# Control characters, marks that reverse or hide text, surrogates, and line separators.
_ACTS = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def printable(text: str, *, keep: str = "") -> str:
    """Return text with characters that control a terminal as escapes; characters of `keep` stay."""
    if text.isprintable():
        return text
    return "".join(
        _escape(character)
        if unicodedata.category(character) in _ACTS and character not in keep
        else character
        for character in text
    )


def printable_json(text: str) -> str:
    """Return an equal JSON document in which such characters are JSON escapes."""
    if text.isprintable():
        return text
    return "".join(
        _json_escape(character)
        if unicodedata.category(character) in _ACTS and character not in "\n\t"
        else character
        for character in text
    )


def shown_bytes(value: bytes | None) -> str:
    """Return a key or a value as text, in hex if it is not UTF-8; "null" for None."""
    if value is None:
        return "null"
    ((form, shown),) = bytes_json(value).items()
    return shown if form == "text" else f"hex {shown}"


def bytes_json(value: bytes) -> dict[str, str]:
    """Return a key or a value as `text`, or as `hex` if it is not UTF-8."""
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"hex": value.hex()}


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
