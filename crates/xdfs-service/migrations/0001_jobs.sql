-- Times are microseconds of UTC since 1970, faults the JSON of the record `error`.
-- Only what both SQLite and PostgreSQL understand.

CREATE TABLE jobs (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    label TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN (
        'queued', 'running', 'requeueing', 'pausing', 'cancelling', 'retrying', 'paused',
        'succeeded', 'failed', 'cancelled')),
    worker TEXT,
    failure TEXT,
    not_before BIGINT,
    -- In a row without progress, and most of them.
    retries BIGINT NOT NULL,
    retries_max BIGINT NOT NULL,
    submitted_at BIGINT NOT NULL,
    started_at BIGINT,
    ended_at BIGINT,
    CHECK ((state IN ('running', 'requeueing', 'pausing', 'cancelling')) = (worker IS NOT NULL)),
    CHECK ((state IN ('failed', 'retrying')) = (failure IS NOT NULL)),
    CHECK ((state = 'retrying') = (not_before IS NOT NULL)),
    CHECK ((state IN ('succeeded', 'failed', 'cancelled')) = (ended_at IS NOT NULL))
);

CREATE INDEX jobs_by_state ON jobs (state, id);
CREATE INDEX jobs_to_claim ON jobs (id) WHERE state IN ('queued', 'retrying');

CREATE TABLE submissions (
    owner TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    digest TEXT NOT NULL,
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    PRIMARY KEY (owner, idempotency_key)
);

CREATE TABLE transfers (
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    kind TEXT NOT NULL,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    spec TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'running', 'succeeded', 'failed')),
    attempts BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    bytes_total BIGINT,
    files BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    limited_by TEXT,
    failure TEXT,
    started_at BIGINT,
    ended_at BIGINT,
    PRIMARY KEY (job_id, position),
    CHECK ((state = 'failed') = (failure IS NOT NULL)),
    CHECK ((state IN ('succeeded', 'failed')) = (ended_at IS NOT NULL))
);

-- Entries of trees that failed in the last attempt.
CREATE TABLE failures (
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    position BIGINT NOT NULL,
    failure TEXT NOT NULL,
    PRIMARY KEY (job_id, number)
);

CREATE TABLE transitions (
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    number BIGINT NOT NULL,
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    from_state TEXT,
    to_state TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (job_id, number)
);

-- Sessions of browsers, by the SHA-256 of their cookie.
CREATE TABLE sessions (
    cookie_digest TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    ends_at BIGINT NOT NULL
);
