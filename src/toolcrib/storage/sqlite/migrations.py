"""The tables of a store: one tuple of statements per version. Released versions never change."""

from __future__ import annotations

from typing import Final

_VERSION_1: Final = (
    "CREATE TABLE manifests (server TEXT PRIMARY KEY, identity TEXT NOT NULL, body TEXT NOT NULL, seen REAL NOT NULL)",
    "CREATE TABLE pins (server TEXT NOT NULL, tool TEXT NOT NULL, fingerprint TEXT NOT NULL, "
    "definition TEXT NOT NULL, state TEXT NOT NULL, first_seen REAL NOT NULL, candidate TEXT, "
    "candidate_fingerprint TEXT NOT NULL, PRIMARY KEY (server, tool))",
    "CREATE INDEX pins_by_state ON pins (state)",
    "CREATE TABLE revision (number INTEGER NOT NULL)",
    "INSERT INTO revision VALUES (0)",
    "CREATE TABLE usage (tool_id TEXT PRIMARY KEY, calls INTEGER NOT NULL, "
    "failures INTEGER NOT NULL, seconds REAL NOT NULL, last_used REAL NOT NULL)",
    "CREATE INDEX usage_by_time ON usage (last_used)",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, amount INTEGER NOT NULL)",
    "CREATE TABLE sessions (key TEXT PRIMARY KEY, body TEXT NOT NULL, at REAL NOT NULL)",
    "CREATE INDEX sessions_by_time ON sessions (at)",
)

_VERSION_2: Final = (
    "CREATE TABLE lessons (circle TEXT NOT NULL, voice TEXT NOT NULL, word TEXT NOT NULL, "
    "weights TEXT NOT NULL, PRIMARY KEY (circle, voice, word)) WITHOUT ROWID",
    "CREATE TABLE lessons_state (number INTEGER NOT NULL, salt_check TEXT NOT NULL)",
    "INSERT INTO lessons_state VALUES (0, '')",
)

# Learning from use was removed in 0.2.
_VERSION_3: Final = ("DROP TABLE lessons", "DROP TABLE lessons_state")

_VERSION_4: Final = (
    "CREATE TABLE llm_usage (day TEXT NOT NULL, key TEXT NOT NULL, model TEXT NOT NULL, "
    "requests INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, "
    "cached_tokens INTEGER NOT NULL, saved_tokens INTEGER NOT NULL, PRIMARY KEY (day, key, model)) WITHOUT ROWID",
)

_VERSION_5: Final = (
    "CREATE TABLE results (handle TEXT PRIMARY KEY, owner TEXT NOT NULL, tool TEXT NOT NULL, body BLOB NOT NULL, "
    "created REAL NOT NULL, expires REAL NOT NULL)",
    "CREATE INDEX results_by_owner ON results (owner, created)",
    "CREATE INDEX results_by_time ON results (created)",
    "CREATE INDEX results_by_expiry ON results (expires)",
)

_VERSION_6: Final = (
    "CREATE TABLE audit (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, action TEXT NOT NULL, "
    "outcome TEXT NOT NULL, key_name TEXT NOT NULL, user_name TEXT NOT NULL, profile TEXT NOT NULL, "
    "client TEXT NOT NULL, session TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, "
    "seconds REAL NOT NULL, request_bytes INTEGER NOT NULL, result_bytes INTEGER NOT NULL, "
    "request_id TEXT NOT NULL, details TEXT NOT NULL)",
    "CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit "
    "BEGIN SELECT raise(ABORT, 'audit rows cannot be changed'); END",
    "CREATE INDEX audit_by_time ON audit (at)",
    "CREATE INDEX audit_by_session ON audit (session, id) WHERE session <> ''",
    "CREATE TABLE time_series (resolution INTEGER NOT NULL, start INTEGER NOT NULL, client TEXT NOT NULL, "
    "name TEXT NOT NULL, amount INTEGER NOT NULL, PRIMARY KEY (resolution, start, client, name)) WITHOUT ROWID",
    "CREATE TABLE api_keys (id TEXT PRIMARY KEY, hash TEXT NOT NULL UNIQUE, name TEXT NOT NULL, profile TEXT, "
    "created_at REAL NOT NULL, created_by TEXT NOT NULL)",
    "CREATE TABLE key_usage (hash TEXT PRIMARY KEY, requests INTEGER NOT NULL, last_used REAL NOT NULL)",
    "CREATE TABLE access_profiles (name TEXT PRIMARY KEY, body TEXT NOT NULL, created_at REAL NOT NULL)",
)

_VERSION_7: Final = (
    "CREATE TABLE definition_versions (server TEXT NOT NULL, tool TEXT NOT NULL, fingerprint TEXT NOT NULL, "
    "definition TEXT NOT NULL, replaced_at REAL NOT NULL, PRIMARY KEY (server, tool, fingerprint))",
    "CREATE TABLE rejections (server TEXT NOT NULL, tool TEXT NOT NULL, fingerprint TEXT NOT NULL, at REAL NOT NULL, "
    "PRIMARY KEY (server, tool)) WITHOUT ROWID",
    "CREATE TABLE saved_queries (query TEXT PRIMARY KEY, tools TEXT NOT NULL, created_at REAL NOT NULL)",
)

_VERSION_8: Final = (
    "CREATE TABLE changes (topic TEXT NOT NULL, subject TEXT NOT NULL, number INTEGER NOT NULL, "
    "PRIMARY KEY (topic, subject)) WITHOUT ROWID",
    "CREATE INDEX changes_by_number ON changes (number)",
    "CREATE TABLE oauth_tokens (name TEXT PRIMARY KEY, body BLOB NOT NULL, claimed_until REAL NOT NULL)",
    "CREATE TABLE vectors (key BLOB PRIMARY KEY, vector BLOB NOT NULL, stored_at REAL NOT NULL)",
    "CREATE INDEX vectors_by_time ON vectors (stored_at)",
)

_VERSION_9: Final = (
    "ALTER TABLE api_keys ADD COLUMN tokens_per_day INTEGER",
    "ALTER TABLE api_keys ADD COLUMN requests_per_day INTEGER",
)

_VERSION_10: Final = (
    "CREATE TABLE shared_values (kind TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, expires_at REAL NOT NULL, "
    "PRIMARY KEY (kind, key)) WITHOUT ROWID",
    "CREATE INDEX shared_values_by_expiry ON shared_values (expires_at)",
)

_VERSION_11: Final = (
    "CREATE TABLE example_requests (fingerprint TEXT PRIMARY KEY, tool TEXT NOT NULL, requests TEXT NOT NULL, "
    "model TEXT NOT NULL, written_at REAL NOT NULL)",
)

_VERSION_12: Final = ("CREATE TABLE scans (server TEXT PRIMARY KEY, digest TEXT NOT NULL, body TEXT NOT NULL)",)

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    _VERSION_1,
    _VERSION_2,
    _VERSION_3,
    _VERSION_4,
    _VERSION_5,
    _VERSION_6,
    _VERSION_7,
    _VERSION_8,
    _VERSION_9,
    _VERSION_10,
    _VERSION_11,
    _VERSION_12,
)
