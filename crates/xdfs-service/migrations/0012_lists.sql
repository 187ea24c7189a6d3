-- Lists and claims stay quick with many jobs: what they look at in each row is in an index.

DROP INDEX jobs_by_state;
DROP INDEX jobs_by_owner;
CREATE INDEX jobs_by_id ON jobs (id, LOWER(label), deleted_at);
CREATE INDEX jobs_by_state ON jobs (state, id, LOWER(label), deleted_at);
CREATE INDEX jobs_by_owner ON jobs (owner, id, LOWER(label), deleted_at);
CREATE INDEX jobs_by_owner_and_state ON jobs (owner, state, id, LOWER(label), deleted_at);

-- Of those that are queued or retrying.
DROP INDEX jobs_to_claim;
CREATE INDEX jobs_to_claim ON jobs
    (queue, priority DESC, id, not_before, starts_at, worker, ended_at, state)
    WHERE worker IS NULL AND ended_at IS NULL AND state <> 'paused';
CREATE INDEX jobs_by_time ON jobs (COALESCE(not_before, starts_at), id)
    WHERE worker IS NULL AND ended_at IS NULL AND state <> 'paused';

-- Those with a time of their own, and the others.
DROP INDEX jobs_to_expire;
CREATE INDEX jobs_to_expire ON jobs (ended_at)
    WHERE deleted_at IS NULL AND ended_at IS NOT NULL
    AND (keep_until IS NULL OR keep_until <= ended_at);
CREATE INDEX jobs_kept_until ON jobs (keep_until)
    WHERE deleted_at IS NULL AND ended_at IS NOT NULL AND keep_until > ended_at;

DROP INDEX transfers_running;
DROP INDEX transfers_failed;
CREATE INDEX transfers_by_state ON transfers (job_id, state, position);

-- A job that is deleted is looked for in it.
CREATE INDEX submissions_by_job ON submissions (job_id);
