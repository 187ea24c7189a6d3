-- What the scheduler decides from.

-- The servers of a transfer, without a name for the machine of the service; of a job, those of its
-- next transfer.
ALTER TABLE transfers ADD COLUMN source_server TEXT NOT NULL DEFAULT '';
ALTER TABLE transfers ADD COLUMN target_server TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN source_server TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN target_server TEXT NOT NULL DEFAULT '';
-- Its owner, its servers and its size: the jobs of one queue wait for the same.
ALTER TABLE jobs ADD COLUMN queue TEXT NOT NULL DEFAULT '';
-- It is known to be large; it has made place for a smaller one.
ALTER TABLE jobs ADD COLUMN is_large BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN has_yielded BIGINT NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN claimed_at BIGINT;

DROP INDEX jobs_to_claim;
CREATE INDEX jobs_to_claim ON jobs (queue, priority DESC, id)
    WHERE state IN ('queued', 'retrying');

-- Pairs of servers: jobs that may run between them, the last rate, and the bytes since then.
CREATE TABLE links (
    source_server TEXT NOT NULL,
    target_server TEXT NOT NULL,
    jobs BIGINT NOT NULL,
    rate BIGINT,
    -- With one job less, while one more is tried.
    rate_before BIGINT,
    pause_until BIGINT NOT NULL,
    vain BIGINT NOT NULL,
    bytes BIGINT NOT NULL,
    measured_at BIGINT NOT NULL,
    PRIMARY KEY (source_server, target_server)
);

-- The last changes of their number of jobs.
CREATE TABLE link_decisions (
    source_server TEXT NOT NULL,
    target_server TEXT NOT NULL,
    number BIGINT NOT NULL,
    at BIGINT NOT NULL,
    jobs BIGINT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (source_server, target_server, number)
);

-- Servers that are down.
CREATE TABLE outages (
    server TEXT PRIMARY KEY,
    failures BIGINT NOT NULL,
    try_at BIGINT NOT NULL,
    cause TEXT NOT NULL
);
