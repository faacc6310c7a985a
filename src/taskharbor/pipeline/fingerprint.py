"""The rules of `core.fingerprints` as native column expressions, so that Spark never has to ask Python about a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taskharbor.core.fingerprints import DIGITS, KEPT, LONGEST, NORMALISED, PLAIN, RAISED, SHORT, TRACED

if TYPE_CHECKING:
    from pyspark.sql import Column


def error_class(error: Column, outcome: Column) -> Column:
    """The exception's name, else a word for how the attempt failed; null where nothing failed."""
    from pyspark.sql import functions as F

    traced = F.regexp_extract(error, TRACED, 1)
    named = F.when(error.startswith("Traceback"), traced).otherwise(F.regexp_extract(error, PLAIN, 1))
    short = F.regexp_extract(named, SHORT, 1)
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

    raised = F.regexp_extract(error, RAISED, 1)
    text = F.when(error.startswith("Traceback") & (raised != ""), raised).otherwise(error)
    text = F.substring(text, 1, LONGEST)
    for pattern, instead in NORMALISED:
        text = F.regexp_replace(text, pattern, instead)
    return F.trim(F.substring(text, 1, KEPT))


def fingerprint(error: Column, error_class: Column) -> Column:
    """Sixteen hexadecimal digits; null where there is no error."""
    from pyspark.sql import functions as F

    digest = F.substring(F.sha2(F.concat_ws("\n", error_class, normalised(error)), 256), 1, DIGITS)
    return F.when(error.isNotNull() & (error != ""), digest)
