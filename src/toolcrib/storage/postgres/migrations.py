"""The tables of a store in PostgreSQL: one tuple of statements per version. Released versions never change.

While replicas are updated one by one, old ones use the new tables: only add tables, columns and indexes.
"""

from __future__ import annotations

from typing import Any, Final

from psycopg import Connection

from toolcrib.errors import InvalidStore

SCHEMA: Final = "toolcrib"
# "crbs" in ASCII; the key of the advisory locks.
LOCK_CLASS: Final = 0x63726273

MIGRATION_TIMEOUT_SECONDS: Final = 300

# Names sort by code point, as in Python and SQLite, whatever the locale of the database is.
_NAME: Final = 'TEXT COLLATE "C" NOT NULL'

_VERSION_1: Final = (
    f"CREATE TABLE manifests (server {_NAME} PRIMARY KEY, identity TEXT NOT NULL, body TEXT NOT NULL, "
    "seen DOUBLE PRECISION NOT NULL)",
    f"CREATE TABLE pins (server {_NAME}, tool {_NAME}, fingerprint TEXT NOT NULL, definition TEXT NOT NULL, "
    "state TEXT NOT NULL, first_seen DOUBLE PRECISION NOT NULL, candidate TEXT, "
    "candidate_fingerprint TEXT NOT NULL, PRIMARY KEY (server, tool))",
    "CREATE INDEX pins_by_state ON pins (state) WHERE state <> 'approved'",
    f"CREATE TABLE definition_versions (server {_NAME}, tool {_NAME}, fingerprint {_NAME}, definition TEXT NOT NULL, "
    "replaced_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (server, tool, fingerprint))",
    f"CREATE TABLE rejections (server {_NAME}, tool {_NAME}, fingerprint TEXT NOT NULL, at DOUBLE PRECISION NOT NULL, "
    "PRIMARY KEY (server, tool))",
    f"CREATE TABLE saved_queries (query {_NAME} PRIMARY KEY, tools TEXT NOT NULL, "
    "created_at DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE revision (number BIGINT NOT NULL)",
    "INSERT INTO revision VALUES (0)",
    f"CREATE TABLE changes (topic {_NAME}, subject {_NAME}, number BIGINT NOT NULL, PRIMARY KEY (topic, subject))",
    "CREATE INDEX changes_by_number ON changes (number)",
    f"CREATE TABLE oauth_tokens (name {_NAME} PRIMARY KEY, body BYTEA NOT NULL, "
    "claimed_until DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE vectors (key BYTEA PRIMARY KEY, vector BYTEA NOT NULL, stored_at DOUBLE PRECISION NOT NULL)",
    "CREATE INDEX vectors_by_time ON vectors (stored_at)",
    f"CREATE TABLE usage (tool_id {_NAME} PRIMARY KEY, calls BIGINT NOT NULL, failures BIGINT NOT NULL, "
    "seconds DOUBLE PRECISION NOT NULL, last_used DOUBLE PRECISION NOT NULL)",
    "CREATE INDEX usage_by_time ON usage (last_used)",
    f"CREATE TABLE counters (name {_NAME} PRIMARY KEY, amount BIGINT NOT NULL)",
    f"CREATE TABLE llm_usage (day {_NAME}, key {_NAME}, model {_NAME}, requests BIGINT NOT NULL, "
    "input_tokens BIGINT NOT NULL, output_tokens BIGINT NOT NULL, cached_tokens BIGINT NOT NULL, "
    "saved_tokens BIGINT NOT NULL, PRIMARY KEY (day, key, model))",
    f"CREATE TABLE results (handle {_NAME} PRIMARY KEY, owner {_NAME}, tool TEXT NOT NULL, body BYTEA NOT NULL, "
    "created DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION NOT NULL)",
    "CREATE INDEX results_by_owner ON results (owner, created)",
    "CREATE INDEX results_by_time ON results (created)",
    "CREATE INDEX results_by_expiry ON results (expires)",
    "CREATE TABLE audit (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at DOUBLE PRECISION NOT NULL, "
    "action TEXT NOT NULL, outcome TEXT NOT NULL, key_name TEXT NOT NULL, user_name TEXT NOT NULL, "
    "profile TEXT NOT NULL, client TEXT NOT NULL, session TEXT NOT NULL, server TEXT NOT NULL, tool TEXT NOT NULL, "
    "seconds DOUBLE PRECISION NOT NULL, request_bytes BIGINT NOT NULL, result_bytes BIGINT NOT NULL, "
    "request_id TEXT NOT NULL, details TEXT NOT NULL)",
    "CREATE FUNCTION refuse_audit_update() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RAISE EXCEPTION 'audit rows cannot be changed'; END $$",
    "CREATE TRIGGER audit_is_append_only BEFORE UPDATE ON audit FOR EACH ROW EXECUTE FUNCTION refuse_audit_update()",
    "CREATE INDEX audit_by_time ON audit (at)",
    "CREATE INDEX audit_by_session ON audit (session, id) WHERE session <> ''",
    f"CREATE TABLE time_series (resolution BIGINT NOT NULL, start BIGINT NOT NULL, client {_NAME}, name {_NAME}, "
    "amount BIGINT NOT NULL, PRIMARY KEY (resolution, start, client, name))",
    f"CREATE TABLE api_keys (id {_NAME} PRIMARY KEY, hash {_NAME} UNIQUE, name TEXT NOT NULL, profile TEXT, "
    "created_at DOUBLE PRECISION NOT NULL, created_by TEXT NOT NULL)",
    f"CREATE TABLE key_usage (hash {_NAME} PRIMARY KEY, requests BIGINT NOT NULL, last_used DOUBLE PRECISION NOT NULL)",
    f"CREATE TABLE access_profiles (name {_NAME} PRIMARY KEY, body TEXT NOT NULL, "
    "created_at DOUBLE PRECISION NOT NULL)",
)

_VERSION_2: Final = ("ALTER TABLE api_keys ADD COLUMN tokens_per_day BIGINT, ADD COLUMN requests_per_day BIGINT",)

_VERSION_3: Final = (
    f"CREATE TABLE shared_values (kind {_NAME}, key {_NAME}, body TEXT NOT NULL, "
    "expires_at DOUBLE PRECISION NOT NULL, PRIMARY KEY (kind, key))",
    "CREATE INDEX shared_values_by_expiry ON shared_values (expires_at)",
)

_VERSION_4: Final = (
    "CREATE TABLE example_requests (fingerprint TEXT PRIMARY KEY, tool TEXT NOT NULL, requests TEXT NOT NULL, "
    "model TEXT NOT NULL, written_at DOUBLE PRECISION NOT NULL)",
)

_VERSION_5: Final = (f"CREATE TABLE scans (server {_NAME} PRIMARY KEY, digest TEXT NOT NULL, body TEXT NOT NULL)",)

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (_VERSION_1, _VERSION_2, _VERSION_3, _VERSION_4, _VERSION_5)


def migrate_database(connection: Connection[Any], migrations: tuple[tuple[str, ...], ...] = MIGRATIONS) -> None:
    """Create the schema, or run the missing migrations. Replicas that start at the same time wait for the first."""
    if _read_version(connection) == len(migrations):
        return
    with connection.transaction():
        # The migration of another replica may take longer than a statement usually may.
        connection.execute(f"SET LOCAL statement_timeout TO '{MIGRATION_TIMEOUT_SECONDS}s'".encode())
        connection.execute(f"SET LOCAL lock_timeout TO '{MIGRATION_TIMEOUT_SECONDS}s'".encode())
        connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (LOCK_CLASS,))
        version = _read_version(connection)
        if version > len(migrations):
            raise InvalidStore(
                f"the database was written by a newer version of Toolcrib (version {version}, supported up to "
                f"{len(migrations)}); update Toolcrib, or use another database"
            )
        if version < 0:
            # `IF NOT EXISTS` would need rights that the owner of an existing schema may not have.
            if not connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (SCHEMA,)).fetchone():
                connection.execute(f"CREATE SCHEMA {SCHEMA}".encode())
            connection.execute("CREATE TABLE schema_version (number BIGINT NOT NULL)")
            connection.execute("INSERT INTO schema_version VALUES (0)")
        for statements in migrations[max(version, 0) :]:
            for statement in statements:
                connection.execute(statement.encode())
        connection.execute("UPDATE schema_version SET number = %s", (len(migrations),))


def _read_version(connection: Connection[Any]) -> int:
    """Return the version of the schema, or -1 if there is none."""
    # Not `to_regclass`, whose cache may not have the table that another replica has just created.
    query = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'schema_version'"
    if not connection.execute(query, (SCHEMA,)).fetchone():
        return -1
    number = connection.execute("SELECT number FROM schema_version").fetchone()
    return int(number[0]) if number else -1
