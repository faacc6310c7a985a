"""What kind of error it was: its class, and a fingerprint that is the same for errors which differ only in details.

Native column expressions, so that Spark never has to ask Python about a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

_NAME: Final = r"(?:\w+\.)*[A-Z]\w*"
_LAST_LINE: Final = rf"(?s)^(?:.*\n)?({_NAME})(?::\s.*)?$"
"""In a traceback, the last line at the margin that begins like the name of an exception. Frames are indented."""
_PLAIN: Final = rf"(?s)^({_NAME}):\s"
_MESSAGE: Final = rf"(?s)^.*\n({_NAME}(?::\s.*)?)$"

NORMALISED: Final = (
    # What stands in quotes is data. An apostrophe inside a word is none.
    (r"\"[^\"\n]*\"|(?<!\w)'[^'\n]*'(?!\w)|`[^`\n]*`", "<text>"),
    (r"(?i)\b[a-z][a-z0-9+.-]*://[^\s,;)\]>]+", "<address>"),
    (r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+", "<address>"),
    (r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|(?i)\b(?:[a-z0-9-]+\.)+[a-z]{2,}:\d+\b", "<address>"),
    (r"(?<![\w<])(?:[A-Za-z]:\\|\.{0,2}/)[\w.@%+~-]+(?:[/\\][\w.@%+~-]*)*", "<path>"),
    (r"(?i)\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b", "<id>"),
    (r"(?i)\b0x[0-9a-f]+\b", "<hex>"),
    (r"(?i)\b(?=[a-f]*\d)[0-9a-f]{8,}\b", "<hex>"),
    (r"[-+]?\d+(?:[.,:]\d+)*(?:[eE][-+]?\d+)?", "<n>"),
    (r"\s+", " "),
)
"""Patterns and what stands in their place, in this order; in the words of Java, which runs them."""


def error_class(error: Column, outcome: Column) -> Column:
    """The exception's name, else a word for how the attempt failed; null where nothing failed."""
    from pyspark.sql import functions as F

    traced = F.regexp_extract(error, _LAST_LINE, 1)
    named = F.when(error.startswith("Traceback"), traced).otherwise(F.regexp_extract(error, _PLAIN, 1))
    short = F.regexp_extract(named, r"([^.]+)$", 1)
    return (
        F.when(outcome == "lapsed", F.lit("Lapsed"))
        .when(error.isNull() | (error == ""), F.lit(None).cast("string"))
        .when(short != "", short)
        .when(error.startswith("timed out"), F.lit("Timeout"))
        .otherwise(F.lit("Error"))
    )


def normalised(error: Column) -> Column:
    """The text with numbers, ids, quoted words, addresses and paths taken out; of a traceback only what was raised."""
    from pyspark.sql import functions as F

    raised = F.regexp_extract(error, _MESSAGE, 1)
    text = F.when(error.startswith("Traceback") & (raised != ""), raised).otherwise(error)
    text = F.substring(text, 1, 2000)
    for pattern, instead in NORMALISED:
        text = F.regexp_replace(text, pattern, instead)
    return F.trim(F.substring(text, 1, 400))


def fingerprint(error: Column, error_class: Column) -> Column:
    """Sixteen hexadecimal digits; null where there is no error."""
    from pyspark.sql import functions as F

    digest = F.substring(F.sha2(F.concat_ws("\n", error_class, normalised(error)), 256), 1, 16)
    return F.when(error.isNotNull() & (error != ""), digest)
