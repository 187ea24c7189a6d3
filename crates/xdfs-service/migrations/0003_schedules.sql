-- Schedules: each submits a job whenever its time has come.

CREATE TABLE schedules (
    id TEXT PRIMARY KEY,
    owner TEXT NOT NULL,
    -- The submission of its jobs, and for people their label and first places.
    spec TEXT NOT NULL,
    label TEXT NOT NULL,
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    rule TEXT NOT NULL,
    idempotency_key TEXT,
    digest TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    -- And the time of the clock at which it was reckoned.
    next_at BIGINT NOT NULL,
    reckoned_at BIGINT NOT NULL,
    last_job TEXT,
    last_at BIGINT,
    submitted BIGINT NOT NULL,
    -- Times at which the last job had not ended.
    skipped BIGINT NOT NULL,
    skipped_at BIGINT,
    -- Why the last submission was refused.
    failure TEXT,
    UNIQUE (owner, idempotency_key)
);

CREATE INDEX schedules_due ON schedules (next_at);
CREATE INDEX schedules_reckoned ON schedules (reckoned_at);

ALTER TABLE jobs ADD COLUMN schedule_id TEXT;
