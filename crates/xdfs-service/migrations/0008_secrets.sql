-- Secrets that jobs log in to servers with, sealed by a key that isn't in the database.
CREATE TABLE secrets (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('password', 'token', 'key')),
    server TEXT,
    sealed TEXT NOT NULL,
    changed_at BIGINT NOT NULL,
    UNIQUE (owner, name)
);

-- The secrets that jobs name.
CREATE TABLE job_secrets (
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    PRIMARY KEY (job_id, name)
);
