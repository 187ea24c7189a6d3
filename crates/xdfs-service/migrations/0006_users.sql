-- The version of the password that began a session; none if a link did.
ALTER TABLE sessions ADD COLUMN password_version TEXT;

CREATE INDEX sessions_by_owner ON sessions (owner, ends_at);

-- API tokens, by the SHA-256 of their secret part.
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    owner TEXT NOT NULL,
    label TEXT NOT NULL,
    scope TEXT NOT NULL CHECK (scope IN ('read', 'submit', 'admin')),
    created_at BIGINT NOT NULL,
    ends_at BIGINT NOT NULL
);

CREATE INDEX tokens_by_owner ON tokens (owner, created_at);

CREATE INDEX jobs_by_owner ON jobs (owner, id);
