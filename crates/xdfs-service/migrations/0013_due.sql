-- Jobs that wait for a time aren't in the index of those that can be claimed, however many there
-- are: a claim first looks for those that are due.

ALTER TABLE jobs ADD COLUMN is_later BIGINT NOT NULL DEFAULT 0;

UPDATE jobs SET is_later = 1
    WHERE ended_at IS NULL AND worker IS NULL AND COALESCE(not_before, starts_at) IS NOT NULL;

CREATE INDEX jobs_later ON jobs (COALESCE(not_before, starts_at)) WHERE is_later = 1;

DROP INDEX jobs_to_claim;
CREATE INDEX jobs_to_claim ON jobs
    (queue, priority DESC, id, not_before, starts_at, worker, ended_at, state, is_later)
    WHERE worker IS NULL AND ended_at IS NULL AND state <> 'paused' AND is_later = 0;
