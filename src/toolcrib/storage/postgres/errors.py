"""Turn errors of PostgreSQL into sentences that name the remedy. No message contains a password."""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import errors

from toolcrib.errors import InvalidStore, StoreUnavailable
from toolcrib.storage.sql_database import DamagedValue

_MAX_MESSAGE_CHARS: Final = 300
# The text of an error at login has no code, so the words of the server decide.
_LOGIN_REMEDIES: Final = (
    ("password authentication failed", "the user name or the password is wrong; correct them in `store`"),
    (
        "no password supplied",
        "the server wants a password; add it to `store`, for example as ${TOOLCRIB_STORE_PASSWORD}",
    ),
    ("no pg_hba.conf entry", "the server does not accept this user from this host; allow it in pg_hba.conf"),
    ("role", "there is no such user; create it with CREATE ROLE … LOGIN, or correct `store`"),
    ("database", "there is no such database; create it with CREATE DATABASE, or correct `store`"),
    ("certificate", "the TLS certificate is not accepted; set sslrootcert in `store` to the file of its authority"),
    ("does not support SSL", "the server has no TLS; turn it on, or set sslmode in `store`"),
    ("too many clients", "the server has no free connection; raise its max_connections, or stop other clients"),
    (
        "remaining connection slots",
        "the server has no free connection; raise its max_connections, or stop other clients",
    ),
    ("resolve host", "the host name is unknown; correct it in `store`"),
    ("starting up", "the server is starting; wait"),
)


def build_connect_error(target: str, error: psycopg.Error) -> StoreUnavailable:
    """Return the error for a connection that could not be opened."""
    text = str(error)
    for words, remedy in _LOGIN_REMEDIES:
        if words in text and (words not in ("role", "database") or "does not exist" in text):
            return StoreUnavailable(f"{target}: {remedy} ({_shorten(text)})")
    return StoreUnavailable(f"{target}: PostgreSQL cannot be reached; start it, or correct `store` ({_shorten(text)})")


def build_error(target: str, error: Exception) -> InvalidStore:
    """Return the error for a statement that failed."""
    error_type = StoreUnavailable if is_connection_error(error) else InvalidStore
    return error_type(f"{target}: {_describe_error(error)}")


def is_connection_error(error: Exception) -> bool:
    """Return whether an error means that the connection broke, and not that a statement was wrong or too slow."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    # 57P01 to 57P05: the server is shut down, crashes or starts.
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def _describe_error(error: Exception) -> str:
    text = _shorten(str(error))
    if isinstance(error, DamagedValue):
        return f"a stored value is malformed ({error}); restore a backup"
    if isinstance(error, UnicodeEncodeError):
        return "a name contains half a surrogate pair, which cannot be stored; rename it"
    if isinstance(error, psycopg.DataError) and "NUL" in text:
        return "a name contains a NUL character, which cannot be stored; rename it"
    if isinstance(error, errors.QueryCanceled | errors.LockNotAvailable):
        return f"a statement took too long ({text}); check the load of the server"
    if isinstance(error, errors.InsufficientPrivilege):
        return f"the user has too few rights ({text}); run: CREATE SCHEMA toolcrib AUTHORIZATION <user>"
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return f"the server is read-only ({text}); connect to the primary server"
    if isinstance(error, errors.DiskFull):
        return f"the disk of the server is full ({text}); free some space"
    if isinstance(error, errors.UndefinedTable | errors.UndefinedColumn):
        return f"the tables are incomplete ({text}); restart Toolcrib, or restore a backup"
    if isinstance(error, psycopg.OperationalError):
        return f"the connection to PostgreSQL broke ({text}); check that the server runs"
    return f"PostgreSQL reports an error ({text})"


def _shorten(text: str) -> str:
    return " ".join(text.split())[:_MAX_MESSAGE_CHARS]
