-- Webhooks: each is sent once when its job ends.

CREATE TABLE webhooks (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    url TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'due', 'delivered', 'failed')),
    attempts BIGINT NOT NULL,
    next_attempt_at BIGINT,
    delivered_at BIGINT,
    failure TEXT,
    CHECK ((state = 'due') = (next_attempt_at IS NOT NULL)),
    CHECK ((state = 'delivered') = (delivered_at IS NOT NULL))
);

CREATE INDEX webhooks_due ON webhooks (next_attempt_at) WHERE state = 'due';
